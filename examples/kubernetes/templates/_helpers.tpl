{{- define "gatekit.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "gatekit.labels" -}}
app.kubernetes.io/name: gatekit
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "gatekit.domain" -}}
{{ include "gatekit.name" . }}-replicas.{{ .Release.Namespace }}.svc
{{- end -}}

{{- define "gatekit.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "gatekit.clusterSecret" -}}
{{- if .Values.cluster.secret -}}
{{ .Values.cluster.secret }}
{{- else if .Values.cluster.certManager.enabled -}}
{{ include "gatekit.name" . }}-cluster
{{- else -}}
{{- fail "replicas need a certificate: set cluster.secret to a Secret with ca.crt, tls.crt and tls.key, or cluster.certManager.enabled to true" -}}
{{- end -}}
{{- end -}}

{{- define "gatekit.replicas" -}}
{{- $names := list -}}
{{- range $i := until (int .Values.replicas) -}}
{{- $names = append $names (printf "%s-%d" (include "gatekit.name" $) $i) -}}
{{- end -}}
{{ toJson $names }}
{{- end -}}

{{- define "gatekit.config" -}}
{{- range $table := list "listen" "cluster" "audit" -}}
{{- if regexMatch (printf "(?m)^\\s*\\[\\s*%s\\s*\\]" $table) $.Values.config -}}
{{- fail (printf "config must not have the table [%s]: the chart writes it" $table) -}}
{{- end -}}
{{- end -}}
{{- if not (regexMatch "(?m)^\\s*\\[+\\s*listen\\.auth" .Values.config) -}}
{{- fail "config needs a table of [listen.auth...]: other machines reach the listener, so clients must be authenticated" -}}
{{- end -}}
[listen]
http = "0.0.0.0:7777"
public_url = {{ .Values.publicURL | quote }}
state_key = "${file:/etc/gatekit/state/state.key}"
drain = "{{ .Values.drainSeconds }}s"
shutdown_timeout = "{{ .Values.shutdownSeconds }}s"

[cluster]
name = "${env:POD_NAME}"
listen = "0.0.0.0:7443"
advertise = "${env:POD_NAME}.{{ include "gatekit.domain" . }}:7443"
ca = "/etc/gatekit/cluster/ca.crt"
cert = "/etc/gatekit/cluster/tls.crt"
key = "/etc/gatekit/cluster/tls.key"
replicas = {{ include "gatekit.replicas" . }}

[audit]
file = "/var/lib/gatekit/audit.jsonl"

{{ .Values.config }}
{{- end -}}
