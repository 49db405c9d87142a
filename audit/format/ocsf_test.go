package format_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gatekit/audit"
	"gatekit/core/pipeline"
)

// object is the definition of an object or class in OCSF 1.5.0, reduced to the attributes that our
// events use: https://github.com/ocsf/ocsf-schema. An attribute that is not listed is an error.
// Before adding an attribute here, look it up in the schema.
type object struct {
	required []string
	oneOf    []string          // at least one of them is required
	known    []string          // the other attributes that we use
	parts    map[string]string // name of an attribute's own definition, by attribute
	enum     map[string][]int  // allowed values, by attribute
}

var schema = map[string]object{
	"base": {
		required: []string{"activity_id", "category_uid", "class_uid", "metadata", "severity_id",
			"time", "type_uid"},
		known: []string{"activity_name", "category_name", "class_name", "severity", "message",
			"status_id", "status", "status_detail", "duration", "unmapped"},
		parts: map[string]string{"metadata": "metadata"},
		enum: map[string][]int{"severity_id": {0, 1, 2, 3, 4, 5, 6, 99}, "status_id": {0, 1, 2,
			99}, "category_uid": {6}},
	},
	"security_control": { // a profile
		known: []string{"action_id", "action", "disposition_id", "disposition", "is_alert",
			"policy"},
		parts: map[string]string{"policy": "policy"},
		enum: map[string][]int{"action_id": {0, 1, 2, 3, 4, 99},
			"disposition_id": {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19,
				20, 21, 22, 23, 24, 25, 26, 27, 99}},
	},
	"6003": {
		required: []string{"actor", "api", "src_endpoint"},
		known:    []string{"dst_endpoint", "resources"},
		parts: map[string]string{"actor": "actor", "api": "api", "src_endpoint": "endpoint",
			"dst_endpoint": "endpoint", "resources": "resource"},
		enum: map[string][]int{"activity_id": {0, 1, 2, 3, 4, 99}, "class_uid": {6003}},
	},
	"6002": {
		required: []string{"app"},
		parts:    map[string]string{"app": "product"},
		enum: map[string][]int{"activity_id": {0, 1, 2, 3, 4, 5, 6, 7, 8, 99},
			"class_uid": {6002}},
	},
	"metadata": {
		required: []string{"product", "version"},
		known: []string{"profiles", "uid", "sequence", "correlation_uid", "event_code",
			"log_name", "original_time"},
		parts: map[string]string{"product": "product"},
	},
	"product": {oneOf: []string{"name", "uid"}, known: []string{"vendor_name", "version"}},
	"policy":  {oneOf: []string{"name", "uid"}},
	"actor": {oneOf: []string{"process", "user", "session", "app_name", "app_uid"},
		parts: map[string]string{"user": "user", "session": "session"}},
	"user":    {oneOf: []string{"account", "name", "uid"}},
	"session": {known: []string{"uid"}},
	"api": {required: []string{"operation"}, known: []string{"service", "request", "response"},
		parts: map[string]string{"service": "service", "request": "request",
			"response": "response"}},
	"service":  {oneOf: []string{"name", "uid"}},
	"request":  {required: []string{"uid"}, known: []string{"data"}},
	"response": {known: []string{"code", "error", "data"}},
	"endpoint": {oneOf: []string{"ip", "uid", "name", "hostname", "svc_name", "instance_uid",
		"interface_uid", "interface_name", "domain"}},
	"resource": {oneOf: []string{"name", "uid"}, known: []string{"type"}},
}

// faults returns the differences between a value and the combined definitions of the named objects.
func faults(at string, value map[string]any, names ...string) (all []string) {
	known := map[string]bool{}
	for _, name := range names {
		o := schema[name]
		for _, key := range slices.Concat(o.required, o.oneOf, o.known) {
			known[key] = true
		}
		for _, key := range o.required {
			if _, ok := value[key]; !ok {
				all = append(all, at+": "+key+" is required")
			}
		}
		if len(o.oneOf) > 0 && !slices.ContainsFunc(o.oneOf, func(key string) bool {
			return value[key] != nil
		}) {
			all = append(all, fmt.Sprintf("%s: one of %s is required", at, o.oneOf))
		}
		for key, allowed := range o.enum {
			if id, ok := value[key]; ok && !slices.Contains(allowed, int(id.(float64))) {
				all = append(all, fmt.Sprintf("%s: %s cannot be %v", at, key, id))
			}
		}
		for key, part := range o.parts {
			switch v := value[key].(type) {
			case map[string]any:
				all = append(all, faults(at+"/"+key, v, part)...)
			case []any:
				for _, item := range v {
					all = append(all, faults(at+"/"+key, item.(map[string]any), part)...)
				}
			}
		}
	}
	for key, v := range value {
		if !known[key] {
			all = append(all, at+": "+key+" is not in the schema")
		}
		if v == nil || v == "" {
			all = append(all, at+": "+key+" is empty")
		}
	}
	return all
}

func events(t testing.TB, records []audit.Record) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(written(t, "ocsf", records)) {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func TestOCSFEventsMatchSchema(t *testing.T) {
	records := recorded(t, append(outcomes(t), pipeline.Outcome{Time: at, Before: nil,
		Action: "stop"})...)
	// a record with as few members as possible
	records = append(records, audit.Record{Seq: 1, Time: at, Action: "pass", Kind: "notification",
		Line: []byte("{}")})
	for i, e := range events(t, records) {
		class := fmt.Sprint(e["class_uid"])
		names := []string{"base", class}
		if class == "6003" {
			names = append(names, "security_control")
		}
		for _, fault := range faults("", e, names...) {
			t.Errorf("record %d: %s in %v", i+1, fault, e)
		}
		if want := e["class_uid"].(float64)*100 +
			e["activity_id"].(float64); e["type_uid"] != want {
			t.Errorf("record %d: type_uid is %v, want %v", i+1, e["type_uid"], want)
		}
	}
}

func TestOCSFEventHasAction(t *testing.T) {
	all := events(t, recorded(t, outcomes(t)...))
	for i, want := range []string{
		"6002 Start <nil> <nil> Informational <nil>",
		"6003 Read Allowed Allowed Informational <nil>",
		"6003 tools/call Denied Blocked Medium true",
		"6003 tools/call Modified Corrected Low <nil>",
		"6003 sampling/createMessage Denied Challenge Medium true",
		"6003 notifications/progress Allowed Error High true",
		"6003 tools/call Allowed Allowed Informational <nil>",
		"6003 tools/call Allowed Allowed Informational <nil>",
		"6003 tools/call Denied Error High true",
		"6002 server lost <nil> <nil> High <nil>",
	} {
		e := all[i]
		if got := fmt.Sprint(e["class_uid"], " ", e["activity_name"], " ", e["action"], " ",
			e["disposition"], " ", e["severity"], " ", e["is_alert"]); got != want {
			t.Errorf("record %d is %s, want %s", i+1, got, want)
		}
	}
	denial, modified, sampling := all[2], all[3], all[4]
	if got := fmt.Sprint(denial["policy"], denial["status"], denial["status_detail"],
		denial["actor"], denial["src_endpoint"], denial["dst_endpoint"]); got !=
		"map[name:roots/traversal]Failureoutside of the rootsmap[session:map[uid:s1] "+
			"user:map[uid:ann]] map[name:client uid:s1] map[name:server svc_name:files]" {
		t.Errorf("the denial has %s, want its policy, status, actor and endpoints", got)
	}
	for i, want := range map[int]string{3: "Success", 6: "Failure", 7: "Failure"} {
		if got := all[i]["status"]; got != want {
			t.Errorf("record %d has status %v, want %v", i+1, got, want)
		}
	}
	if got := fmt.Sprint(all[6]["api"], all[7]["unmapped"]); !strings.Contains(got,
		"code:-32000") || !strings.Contains(got, "failed:true") {
		t.Errorf("the events of the failures have %s, want code:-32000 and failed:true", got)
	}
	if got := fmt.Sprint(modified["unmapped"]); !strings.Contains(got, "before:map[hmac:") {
		t.Errorf("the modified message has %s, want an hmac of the original body", got)
	}
	if got := fmt.Sprint(modified["api"]); !strings.Contains(got, "key [redacted]") ||
		strings.Contains(got, "AKIA") {
		t.Errorf("the modified message has the body %s, want it redacted", got)
	}
	if got := fmt.Sprint(sampling["actor"]); !strings.Contains(got, "app_name:files") {
		t.Errorf("the actor of the sampling request is %s, want the server files", got)
	}
	if got := denial["metadata"].(map[string]any); got["sequence"] != 3.0 ||
		got["correlation_uid"] != "e1" || got["version"] != "1.5.0" {
		t.Errorf("the metadata of the denial is %v, want sequence 3, correlation_uid e1 and "+
			"version 1.5.0", got)
	}
}
