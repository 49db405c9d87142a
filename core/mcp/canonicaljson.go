package mcp

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// ErrNotDouble is the error of CanonicalJSON for a number that an IEEE 754 double cannot hold.
var ErrNotDouble = errors.New("a number is no IEEE 754 double")

// CanonicalJSON returns the JSON value raw in the form of RFC 8785. In this form, all numbers are
// IEEE 754 doubles. CanonicalJSON returns ErrNotDouble if a number would lose its value: an integer
// that differs from the nearest double as JavaScript writes it, a number with more than 17
// significant digits that differs, and a number that is too large or too small. It returns another
// error if raw is no JSON value, has duplicate names or is not valid Unicode.
func CanonicalJSON(raw []byte) ([]byte, error) {
	// jsontext reads a bytes.Buffer in place.
	for d := jsontext.NewDecoder(bytes.NewBuffer(raw)); ; {
		token, err := d.ReadToken()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if token.Kind() == '0' && !isDouble(token.String()) {
			return nil, ErrNotDouble
		}
	}
	v := jsontext.Value(bytes.Clone(raw))
	if err := v.Canonicalize(); err != nil {
		return nil, err
	}
	return v, nil
}

// isDouble reports whether a JSON number keeps its value as a double. A program that writes a
// double in decimal needs at most 17 digits, and not all programs write the shortest form. A whole
// number must be the double rounded to its digits, so 9007199254740993.0 is none.
func isDouble(text string) bool {
	f, err := strconv.ParseFloat(text, 64)
	digits, exponent := decimal(text)
	if digits == "" {
		return true
	}
	if err != nil || f == 0 {
		return false
	}
	isWritten := func(precision int) bool {
		written, writtenExponent := decimal(strconv.FormatFloat(f, 'e', precision, 64))
		return digits == written && exponent == writtenExponent
	}
	const shortest = -1
	return isWritten(shortest) || strings.ContainsAny(text, ".eE") && len(digits) <= 17 &&
		(exponent < len(digits) || isWritten(len(digits)-1))
}

// decimal returns the digits of a JSON number without leading and trailing zeros, and the power of
// ten by which 0.DIGITS is multiplied. The digits of zero are "". The exponent is wrong if it does
// not fit an int, but then no double can hold the number.
func decimal(text string) (digits string, exponent int) {
	mantissa, power, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(text, "-")), "e")
	exponent, _ = strconv.Atoi(power)
	whole, fraction, _ := strings.Cut(mantissa, ".")
	all := strings.TrimLeft(whole+fraction, "0")
	return strings.TrimRight(all, "0"), exponent - len(fraction) + len(all)
}
