package policies

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gatekit/core/mcp"

	"github.com/open-policy-agent/opa/v1/ast"
)

// checkEffect returns an error if the effect of a rule can never work. It looks at the constants in
// the rule's head, such as a path, and at the kinds, directions and methods that the rule's body
// requires. It ignores everything that it cannot analyze. r is not compiled yet.
func checkEffect(r *ast.Rule, effect string) error {
	element := r.Head.Key
	if ast.IsConstant(element.Value) {
		// The evaluation of the rule would return the same error for each message.
		if err := new(decision).add(effectRule{effect: effect}, element); err != nil {
			// remove the separator after the rule's name, which is empty here
			return errors.New(strings.TrimPrefix(err.Error(), ": "))
		}
	}
	if o, ok := element.Value.(ast.Object); ok {
		path, hasPath := member(o, "path")
		if hasPath && (effect == "redact" || effect == "set") && !strings.HasPrefix(path, "/") {
			return fmt.Errorf(`%s: the path %q must begin with "/"`, effect, path)
		}
		if pattern, ok := member(o, "pattern"); ok && effect == "redact" {
			if _, err := new(patterns).compiled(pattern); err != nil {
				return fmt.Errorf("redact: %w", err)
			}
		}
	}
	required := requiredValues(r.Body)
	allows := func(f int, value string) bool {
		values, isRequired := required[f]
		return !isRequired || slices.Contains(values, value)
	}
	const direction, kind, method = 0, 1, 2 // in classMembers
	switch effect {
	case "ask", "scope":
		methods, isRequired := required[method]
		if !allows(direction, mcp.ToServer.String()) || !allows(kind, mcp.Request.String()) ||
			isRequired && !slices.ContainsFunc(methods, isRequestToServer) {
			can := map[string]string{"ask": "be approved", "scope": "need scopes"}[effect]
			return fmt.Errorf("%s: only requests to servers can %s, and the rule is about other "+
				"messages", effect, can)
		}
	case "hide":
		methods, isRequired := required[method]
		if !isRequired { // one method each for lists, requests and notifications
			methods = []string{"tools/list", "tools/call", "notifications/resources/updated"}
		}
		if !slices.ContainsFunc(methods, func(m string) bool {
			return allows(kind, mcp.Response.String()) && answerHasItems(m) ||
				allows(kind, methodKind(m).String()) && usesItems(m)
		}) {
			return errors.New("hide: it removes items from lists and denies their use, and the " +
				"rule is about messages without items")
		}
	}
	return nil
}

// isRequestToServer reports whether a request to a server may have the method.
func isRequestToServer(method string) bool {
	m, known := mcp.LookupMethod(method)
	return !known || m.Kind == mcp.Request && m.Direction != mcp.ToClient
}

// methodKind returns the kind of the messages that have the method, other than answers. For an
// unknown method, it returns mcp.Request.
func methodKind(method string) mcp.Kind {
	if m, known := mcp.LookupMethod(method); known {
		return m.Kind
	}
	return mcp.Request
}

// answerHasItems reports whether hide rules can apply to the results of a method.
func answerHasItems(method string) bool {
	m, known := mcp.LookupMethod(method)
	return !known || m.ItemsPointer != "" || method == "roots/list" ||
		method == "resources/directory/read" || method == "skills/get"
}

// usesItems reports whether hide rules can apply to the requests or notifications of a method.
func usesItems(method string) bool {
	m, known := mcp.LookupMethod(method)
	return !known || m.NamePointer != "" || m.Route == mcp.RouteByReference ||
		m.Route == mcp.RouteSubscription
}
