package format

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"gatekit/audit"
)

// Version, classes and numbers of the schema: https://schema.ocsf.io/1.5.0/
const (
	ocsfVersion      = "1.5.0"
	apiActivityClass = 6003
	lifecycleClass   = 6002
	otherActivityID  = 99
)

// ocsfEncoder encodes records as OCSF events.
type ocsfEncoder struct{ version, replica string }

// event is an OCSF event. Optional members are omitted when zero, required members never.
type event struct {
	ActivityID    int         `json:"activity_id"`
	ActivityName  string      `json:"activity_name"`
	CategoryUID   int         `json:"category_uid"`
	CategoryName  string      `json:"category_name"`
	ClassUID      int         `json:"class_uid"`
	ClassName     string      `json:"class_name"`
	TypeUID       int         `json:"type_uid"`
	Time          int64       `json:"time"` // milliseconds since 1970
	SeverityID    int         `json:"severity_id"`
	Severity      string      `json:"severity"`
	Message       string      `json:"message,omitzero"`
	StatusID      int         `json:"status_id,omitzero"`
	Status        string      `json:"status,omitzero"`
	StatusDetail  string      `json:"status_detail,omitzero"`
	Duration      int64       `json:"duration,omitzero"` // milliseconds
	Metadata      metadata    `json:"metadata"`
	ActionID      int         `json:"action_id,omitzero"`
	Action        string      `json:"action,omitzero"`
	DispositionID int         `json:"disposition_id,omitzero"`
	Disposition   string      `json:"disposition,omitzero"`
	IsAlert       bool        `json:"is_alert,omitzero"`
	Policy        *nameObject `json:"policy,omitzero"`
	Actor         *actor      `json:"actor,omitzero"`
	API           *api        `json:"api,omitzero"`
	SrcEndpoint   *endpoint   `json:"src_endpoint,omitzero"`
	DstEndpoint   *endpoint   `json:"dst_endpoint,omitzero"`
	Resources     []resource  `json:"resources,omitzero"`
	App           *product    `json:"app,omitzero"`
	Unmapped      unmapped    `json:"unmapped"`
}

type (
	metadata struct {
		Version        string   `json:"version"`
		Product        product  `json:"product"`
		Profiles       []string `json:"profiles,omitzero"`
		UID            string   `json:"uid"`
		Sequence       uint64   `json:"sequence"`
		CorrelationUID string   `json:"correlation_uid,omitzero"`
		EventCode      string   `json:"event_code"`
		LogName        string   `json:"log_name"`
		OriginalTime   string   `json:"original_time"`
	}
	product struct {
		Name       string `json:"name"`
		VendorName string `json:"vendor_name"`
		Version    string `json:"version,omitzero"`
	}
	nameObject struct {
		Name string `json:"name"`
	}
	uidObject struct {
		UID string `json:"uid"`
	}
	actor struct {
		User    *uidObject `json:"user,omitzero"`
		Session *uidObject `json:"session,omitzero"`
		AppName string     `json:"app_name,omitzero"`
		AppUID  string     `json:"app_uid,omitzero"`
	}
	api struct {
		Operation string      `json:"operation"`
		Service   *nameObject `json:"service,omitzero"`
		Request   *request    `json:"request,omitzero"`
		Response  *response   `json:"response,omitzero"`
	}
	request struct {
		UID  string         `json:"uid"`
		Data jsontext.Value `json:"data,omitzero"`
	}
	response struct {
		Code  int64          `json:"code,omitzero"`
		Error string         `json:"error,omitzero"`
		Data  jsontext.Value `json:"data,omitzero"`
	}
	endpoint struct {
		Name    string `json:"name,omitzero"`
		SvcName string `json:"svc_name,omitzero"`
		UID     string `json:"uid,omitzero"`
	}
	resource struct {
		Name string `json:"name"`
		Type string `json:"type,omitzero"`
	}
	// unmapped has the members of the record that have no place in OCSF. Their names are unchanged.
	unmapped struct {
		Replica   string   `json:"replica,omitzero"` // Options.Replica
		Prev      string   `json:"prev"`
		Kind      string   `json:"kind,omitzero"`
		Direction string   `json:"direction,omitzero"`
		Method    string   `json:"method,omitzero"` // only for a record without a message
		Server    string   `json:"server,omitzero"` // only for a record without a message
		Steps     []step   `json:"steps,omitzero"`
		Before    *body    `json:"before,omitzero"`
		After     *body    `json:"after,omitzero"`
		Values    []string `json:"values,omitzero"`
		Failed    bool     `json:"failed,omitzero"`
		Micros    int64    `json:"micros,omitzero"`
		Error     string   `json:"error,omitzero"`
	}
	step struct {
		Stage    string    `json:"stage"`
		Action   string    `json:"action"`
		Reason   string    `json:"reason,omitzero"`
		Micros   int64     `json:"micros,omitzero"`
		Findings []finding `json:"findings,omitzero"`
		Changed  []string  `json:"changed,omitzero"`
		Hidden   []string  `json:"hidden,omitzero"`

		IDs       []string `json:"ids,omitzero"`
		HiddenIDs []string `json:"hidden_ids,omitzero"`
		Allowed   []string `json:"allowed,omitzero"`
	}
	finding struct {
		Type    string `json:"type"`
		Pointer string `json:"pointer,omitzero"`
	}
	body struct {
		Size   int64  `json:"size"`
		SHA256 string `json:"sha256,omitzero"`
		HMAC   string `json:"hmac,omitzero"`
	}
)

func (ocsfEncoder) Header() []byte { return nil }

func (f ocsfEncoder) Append(b []byte, r *audit.Record) []byte {
	line, err := json.Marshal(f.event(r), jsontext.AllowInvalidUTF8(true),
		jsontext.AllowDuplicateNames(true))
	if err != nil { // the body is not valid JSON; ParseRecord refuses such lines
		r := *r
		r.After = nil
		line, _ = json.Marshal(f.event(&r), jsontext.AllowInvalidUTF8(true))
	}
	return append(appendVisibleJSON(b, line), '\n')
}

func (f ocsfEncoder) event(r *audit.Record) event {
	sum := sha256.Sum256(r.Line)
	gatekit := product{Name: "Gatekit", VendorName: "Gatekit", Version: f.version}
	e := event{
		CategoryUID: 6, CategoryName: "Application Activity",
		Time: r.Time.UnixMilli(), Message: r.Reason, Duration: r.Micros / 1000,
		Metadata: metadata{
			Version: ocsfVersion, Product: gatekit, UID: hex.EncodeToString(sum[:]),
			Sequence: r.Seq, CorrelationUID: r.Exchange, EventCode: r.Action, LogName: "audit",
			OriginalTime: r.Time.UTC().Format(timeLayout),
		},
		Unmapped: unmapped{
			Replica: f.replica,
			Prev:    r.Prev, Kind: r.Kind, Direction: r.Direction, Steps: stepsFrom(r),
			Before: bodyFrom(r.Before), After: bodyFrom(r.After), Values: r.Values,
			Failed: r.Failed,
			Micros: r.Micros, Error: r.Error,
		},
	}
	if r.IsEvent() {
		e.setLifecycle(r, gatekit)
	} else {
		e.setActivity(r)
	}
	e.SeverityID, e.Severity = severity(r)
	e.TypeUID = e.ClassUID*100 + e.ActivityID
	return e
}

// setLifecycle sets the members of the class Application Lifecycle, for a record without a message.
func (e *event) setLifecycle(r *audit.Record, gatekit product) {
	e.ClassUID, e.ClassName, e.App = lifecycleClass, "Application Lifecycle", &gatekit
	e.ActivityID, e.ActivityName = otherActivityID, r.Action
	switch r.Action {
	case "start":
		e.ActivityID, e.ActivityName = 3, "Start"
	case "stop":
		e.ActivityID, e.ActivityName = 4, "Stop"
	}
	e.Unmapped.Method, e.Unmapped.Server = r.Method, r.Server
	if r.Error != "" {
		e.StatusID, e.Status, e.StatusDetail = 2, "Failure", r.Error
	}
}

// setActivity sets the members of the class API Activity, for a record about a message.
func (e *event) setActivity(r *audit.Record) {
	e.ClassUID, e.ClassName = apiActivityClass, "API Activity"
	// Only lists, reads and gets are known to be reads. A tool call, for example, may do anything.
	e.ActivityID, e.ActivityName = otherActivityID, cmp.Or(r.Method, "unknown")
	if strings.HasSuffix(r.Method, "/list") || strings.HasSuffix(r.Method, "/read") ||
		strings.HasSuffix(r.Method, "/get") {
		e.ActivityID, e.ActivityName = 2, "Read"
	}
	e.Metadata.Profiles = []string{"security_control"}
	e.setSecurityControl(r)
	if stage := decidingStage(r); stage != "" {
		e.Policy = &nameObject{stage}
	}
	switch {
	case isDenied(r) || r.Kind == "error" || r.Failed:
		e.StatusID, e.Status, e.StatusDetail = 2, "Failure", cmp.Or(r.Error, r.Reason)
	case r.Kind == "response":
		e.StatusID, e.Status = 1, "Success"
	}
	e.Actor = &actor{}
	if r.Principal != "" {
		e.Actor.User = &uidObject{r.Principal}
	}
	e.Actor.AppUID = r.Client
	if r.Session != "" {
		e.Actor.Session = &uidObject{r.Session}
	}
	client, server := &endpoint{Name: "client", UID: r.Session}, &endpoint{Name: "server",
		SvcName: r.Server}
	e.SrcEndpoint, e.DstEndpoint = client, server
	if r.Direction == "to_client" {
		e.SrcEndpoint, e.DstEndpoint = server, client
	}
	// OCSF requires an actor that is not empty. The server is the actor of requests and
	// notifications to the client.
	if *e.Actor == (actor{}) || r.Direction == "to_client" && r.Kind != "response" &&
		r.Kind != "error" {
		e.Actor.AppName = e.SrcEndpoint.SvcName
		if e.Actor.AppName == "" {
			e.Actor.AppName = e.SrcEndpoint.Name
		}
	}
	e.API = &api{Operation: cmp.Or(r.Method, "unknown")}
	if r.Server != "" {
		e.API.Service = &nameObject{r.Server}
	}
	if r.Name != "" {
		e.Resources = []resource{{Name: r.Name, Type: resourceType(r.Method)}}
	}
	var content jsontext.Value
	if r.After != nil {
		content = r.After.Body
	}
	if r.Kind == "response" || r.Kind == "error" {
		e.API.Response = &response{Code: r.Code, Error: r.Error, Data: content}
		content = nil
	}
	if r.Exchange != "" || content != nil {
		e.API.Request = &request{UID: cmp.Or(r.Exchange, "unknown"), Data: content}
	}
}

// setSecurityControl sets the action in the terms of the profile security_control.
func (e *event) setSecurityControl(r *audit.Record) {
	type idAndName struct {
		id   int
		name string
	}
	allowed, denied, modified := idAndName{1, "Allowed"}, idAndName{2, "Denied"},
		idAndName{4, "Modified"}
	action, disposition := idAndName{99, r.Action}, idAndName{99, r.Action}
	switch r.Action {
	case "pass", "allowed":
		action, disposition = allowed, idAndName{1, "Allowed"}
	case "deny":
		action, disposition = denied, idAndName{2, "Blocked"}
		if r.Error != "" { // denied because something failed
			disposition = idAndName{27, "Error"}
		}
	case "ask":
		action, disposition = denied, idAndName{23, "Challenge"}
	case "modify", "hide":
		action, disposition = modified, idAndName{11, "Corrected"}
	case "answer", "restore":
		action, disposition = modified, idAndName{7, "Custom Action"}
	case "skip": // a stage failed and was ignored
		action, disposition = allowed, idAndName{27, "Error"}
	}
	if strings.HasPrefix(r.Action, "would_") { // a stage that is not enforced
		action, disposition = allowed, idAndName{17, "Logged"}
	}
	e.ActionID, e.Action, e.DispositionID, e.Disposition = action.id, action.name, disposition.id,
		disposition.name
	e.IsAlert = isDenied(r) || r.Action == "skip"
}

func severity(r *audit.Record) (int, string) {
	switch {
	case r.Error != "" || r.Action == "skip":
		return 4, "High"
	case isDenied(r):
		return 3, "Medium"
	case r.IsEvent() || r.Action == "pass":
		return 1, "Informational"
	}
	return 2, "Low"
}

// resourceType returns the type of the resource that a message of this method is about, or "" if
// the type is unknown.
func resourceType(method string) string {
	switch {
	case strings.HasPrefix(method, "tools/"):
		return "tool"
	case strings.HasPrefix(method, "resources/"):
		return "resource"
	case strings.HasPrefix(method, "prompts/"):
		return "prompt"
	}
	return ""
}

func stepsFrom(r *audit.Record) []step {
	if r.Steps == nil {
		return nil
	}
	steps := make([]step, len(r.Steps))
	for i, s := range r.Steps {
		steps[i] = step{Stage: s.Stage, Action: s.Action, Reason: s.Reason, Micros: s.Micros,
			Changed: s.Changed, Hidden: s.Hidden, IDs: s.IDs, HiddenIDs: s.HiddenIDs,
			Allowed: s.Allowed}
		for _, f := range s.Findings {
			steps[i].Findings = append(steps[i].Findings, finding{f.Type, f.Pointer})
		}
	}
	return steps
}

func bodyFrom(b *audit.Body) *body {
	if b == nil {
		return nil
	}
	return &body{b.Size, b.SHA256, b.HMAC}
}
