{{- define "slb.selector" -}}
app.kubernetes.io/name: slb
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "slb.labels" -}}
{{ include "slb.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}
