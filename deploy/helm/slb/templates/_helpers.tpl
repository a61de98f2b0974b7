{{/* The names of all objects begin with this: the release's name, with `slb` in it. */}}
{{- define "slb.name" -}}
{{- if contains "slb" .Release.Name }}{{ .Release.Name }}{{ else }}{{ printf "%s-slb" .Release.Name }}{{ end }}
{{- end }}

{{/* Labels that selectors use. They are never changed: a selector cannot be. */}}
{{- define "slb.selector" -}}
app.kubernetes.io/name: slb
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "slb.labels" -}}
{{ include "slb.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "slb.image" -}}
{{ .Values.image.repository }}{{ with .Values.image.tag }}:{{ . }}{{ end }}
{{- end }}

{{/* Where the services are that discovery follows. */}}
{{- define "slb.discovered" -}}
{{ .Values.discovery.namespace | default .Release.Namespace }}
{{- end }}

{{- define "slb.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "slb.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: ["ALL"]
{{- end }}

{{/* Takes the list of the root and the component. */}}
{{- define "slb.spread" -}}
{{- $root := index . 0 }}
{{- $component := index . 1 }}
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "slb.selector" $root | nindent 6 }}
      app.kubernetes.io/component: {{ $component }}
{{- end }}
{{- end }}

{{- define "slb.probes" -}}
startupProbe:
  httpGet:
    path: /healthz
    port: api
  periodSeconds: 1
  failureThreshold: 60
# It does not fail when Redis is lost: traffic goes on without Redis.
readinessProbe:
  httpGet:
    path: /readyz
    port: api
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
livenessProbe:
  httpGet:
    path: /healthz
    port: api
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}

{{- define "slb.env" -}}
- name: SLB_REDIS_URL_FILE
  value: /etc/slb/secret/redis-url
- name: SLB_API_TOKEN_FILE
  value: /etc/slb/secret/api-token
# A directory within the volume: slb makes it for its user alone, which the volume itself is not.
- name: SLB_DATA_DIR
  value: /var/lib/slb/data
{{- end }}

{{/* Who may call the API. */}}
{{- define "slb.apiIngress" -}}
- ports:
    - protocol: TCP
      port: 8081
  from:
    - podSelector:
        matchLabels:
          {{- include "slb.selector" . | nindent 10 }}
    {{- with .Values.networkPolicy.apiFrom }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* Where pods run; takes the values of proxy or discovery. */}}
{{- define "slb.placement" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
