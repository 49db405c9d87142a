package main

import "html/template"

var form = template.Must(template.New("form").Parse(`<!doctype html><title>Log in</title>
<form method="post" action="{{.To}}">
{{range $name, $value := .Hidden}}<input type="hidden" name="{{$name}}" value="{{$value}}">
{{end}}<button>Continue</button></form>
`))
