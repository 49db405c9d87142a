package secrets

import "strings"

// The parts of the expressions with which gitleaks matches "name = value".
const (
	nameStart      = `[\w.-]{0,50}?(?:`
	nameEnd        = `)(?:[ \t\w.-]{0,20})[\s'"\\]{0,5}`
	assignOperator = `(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)`
	valueStart     = `[\x60'"\s=\\]{0,7}`
)

// splitAssignment splits an expression of gitleaks for "name = value" into an expression for the
// name and one for the value. Such an expression has the form
// (?i)[\w.-]{0,50}?(?:names)…operator…value. For any other expression, ok is false.
func splitAssignment(expr string) (names, value string, ok bool) {
	start := strings.LastIndex(expr, nameStart)
	if start < 0 {
		return "", "", false
	}
	names, rest, found := strings.Cut(expr[start+len(nameStart):], nameEnd)
	if !found {
		return "", "", false
	}
	rest = strings.TrimPrefix(rest, ")") // the end of a group (?i:…) around the name
	if value, found = strings.CutPrefix(rest, assignOperator+valueStart); !found {
		return "", "", false
	}
	if strings.HasPrefix(expr, "(?i)") {
		value = "(?i)" + value
	}
	return "(?i)" + names, value, true
}

// The classes of bytes in an assignment.
const (
	gapByte      byte = 1 << iota // between the name and the operator: see nameEnd
	operatorByte                  // see assignOperator
	openingByte                   // between the operator and the value: see valueStart
	wordByte                      // in a value, and in an ordinary word
	valueByte                     // in a value, and in no ordinary word
)

var byteClasses = func() (classes [256]byte) {
	for c := range 256 {
		c := byte(c)
		letter, digit := lower(c) >= 'a' && lower(c) <= 'z', c >= '0' && c <= '9'
		blank := c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f'
		quote := c == '\'' || c == '"' || c == '\\'
		put := func(is bool, class byte) {
			if is {
				classes[c] |= class
			}
		}
		put(letter || digit || blank || quote || c == '_' || c == '.' || c == '-', gapByte)
		put(c == '=' || c == '>' || c == ':' || c == '|' || c == '?' || c == ',', operatorByte)
		put(blank || quote || c == '`' || c == '=', openingByte)
		put(letter || c == '_' || c == '.' || c == '-', wordByte)
		put(digit || c == '=' || c == '+' || c == '/', valueByte)
	}
	return classes
}()

// The longest gap and the longest opening of an assignment, in bytes.
const (
	maxGap     = 20 + 5 // see nameEnd
	maxOpening = 3 + 7  // an operator without its first byte, and valueStart
)

// findValue reports whether an operator and a value that fits the rule may follow the name that
// ends before s[i]. value is the last index in s at which the value can begin.
func (r *rule) findValue(s string, i int) (value int, ok bool) {
	for end := i + maxGap; i < len(s) && byteClasses[s[i]]&gapByte != 0; i++ {
		if i == end {
			return 0, false
		}
	}
	if i == len(s) || byteClasses[s[i]]&operatorByte == 0 {
		return 0, false
	}
	i++
	last := i
	for end := i + maxOpening; last < len(s) && last < end &&
		byteClasses[s[last]]&(operatorByte|openingByte) != 0; last++ {
	}
	if r.ignoresWords && !hasNonWordByte(s, last) {
		return 0, false
	}
	for ; i <= last; i++ {
		for _, p := range r.valuePrefixes {
			if p.matchesAt(s, i) {
				return last, true
			}
		}
	}
	return 0, false
}

// hasNonWordByte reports whether the value that begins at i holds a byte that no ordinary word has.
func hasNonWordByte(s string, i int) bool {
	for ; i < len(s) && byteClasses[s[i]]&wordByte != 0; i++ {
	}
	return i < len(s) && byteClasses[s[i]]&valueByte != 0
}
