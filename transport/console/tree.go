package console

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"gatekit/audit/format"
)

// The elements and attributes that pages may have. Attributes that begin with aria- or data- are
// allowed, too. A script, a style, a frame, an attribute on… or style, and a link to another place
// are errors: the page is not shown.
var (
	allowedElements = words("a abbr b br button caption code col colgroup dd del details dfn " +
		"div dl dt em figcaption figure form h1 h2 h3 h4 hr i input ins kbd label legend li main " +
		"mark nav ol option p pre q s samp section select small span strong sub summary sup " +
		"table tbody td textarea tfoot th thead time title tr ul wbr " +
		"svg g line path polyline polygon rect circle text tspan desc")
	allowedAttributes = words("autocomplete checked class cols colspan cx cy d datetime " +
		"disabled dx dy for headers height hidden href id inputmode label lang max maxlength " +
		"min multiple name open placeholder points preserveAspectRatio r readonly required role " +
		"rows rowspan rx ry scope selected size spellcheck step tabindex text-anchor title " +
		"transform type value viewBox width x x1 x2 y y1 y2")
	inputTypes = words("checkbox date datetime-local hidden number radio search submit text")
)

func words(text string) map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq(text) {
		set[word] = true
	}
	return set
}

// parseTree parses HTML that is inserted into the element parent, and returns its nodes. A node is
// a string, or a list of the element's name, its attributes and its children: ["p", {"class": "x"},
// "text", ["b", {}, "text"]]. Unprintable characters in texts and attributes are escaped.
func parseTree(r io.Reader, parent string) ([]any, error) {
	nodes, err := html.ParseFragment(r, &html.Node{Type: html.ElementNode, Data: parent,
		DataAtom: atom.Lookup([]byte(parent))})
	if err != nil {
		return nil, err
	}
	tree := []any{}
	for _, n := range nodes {
		if tree, err = appendNode(tree, n, false); err != nil {
			return nil, err
		}
	}
	return tree, nil
}

// appendNode appends the tree of a node. Spaces are kept only within pre and textarea.
func appendNode(to []any, n *html.Node, keepSpaces bool) ([]any, error) {
	switch n.Type {
	case html.CommentNode:
		return to, nil
	case html.TextNode:
		if text := treeText(n.Data, keepSpaces); text != "" {
			to = append(to, text)
		}
		return to, nil
	case html.ElementNode:
	default:
		return nil, fmt.Errorf("the page has a node of the type %d", n.Type)
	}
	if !allowedElements[n.Data] {
		return nil, fmt.Errorf("the page has the element %q, which is not allowed", n.Data)
	}
	attributes := map[string]string{}
	for _, a := range n.Attr {
		name := a.Key
		isFree := strings.HasPrefix(name, "data-") || strings.HasPrefix(name, "aria-")
		isPlace := name == "href" || name == "data-href"
		switch {
		case a.Namespace != "" || !isFree && !allowedAttributes[name]:
			return nil, fmt.Errorf("the page has the attribute %q, which is not allowed", name)
		case isPlace && !strings.HasPrefix(a.Val, "#"):
			return nil, fmt.Errorf("the page has a link that does not begin with #")
		case name == "type" && n.Data == "input" && !inputTypes[a.Val]:
			return nil, fmt.Errorf("the page has an input of the type %q", a.Val)
		}
		// The values of fields are sent back as they are, and cannot be seen.
		if name == "value" {
			attributes[name] = a.Val
		} else {
			attributes[name] = visible(a.Val)
		}
	}
	element := []any{n.Data, attributes}
	keepSpaces = keepSpaces || n.Data == "pre" || n.Data == "textarea"
	var err error
	for child := n.FirstChild; child != nil; child = child.NextSibling {
		if element, err = appendNode(element, child, keepSpaces); err != nil {
			return nil, err
		}
	}
	return append(to, element), nil
}

// treeText returns the text of a node with unprintable characters escaped. Line breaks and tabs are
// part of the templates, so they are kept with keepSpaces, and are one space otherwise.
func treeText(text string, keepSpaces bool) string {
	if keepSpaces {
		lines := strings.Split(text, "\n")
		for i, line := range lines {
			parts := strings.Split(line, "\t")
			for j, part := range parts {
				parts[j] = visible(part)
			}
			lines[i] = strings.Join(parts, "\t")
		}
		return strings.Join(lines, "\n")
	}
	isSpace := func(r rune) bool { return strings.ContainsRune(" \t\r\n\f", r) }
	fields := strings.FieldsFunc(text, isSpace)
	if len(fields) == 0 {
		if text == "" || strings.ContainsRune(text, '\n') {
			return "" // the space between two lines of a template
		}
		return " "
	}
	joined := visible(strings.Join(fields, " "))
	if isSpace(rune(text[0])) {
		joined = " " + joined
	}
	if isSpace(rune(text[len(text)-1])) {
		joined += " "
	}
	return joined
}

func visible(text string) string { return format.Visible(text) }

// cleanList returns the texts that are not empty.
func cleanList(texts []string) []string {
	return slices.DeleteFunc(slices.Clone(texts), func(s string) bool { return s == "" })
}
