{{- define "manager.labels" -}}
app.kubernetes.io/part-of: outrigger
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "manager.image" -}}
{{- $image := .Values.image }}
{{- if hasSuffix "provider-aws/cloud-controller-manager" $image.repository }}
{{- fail (printf "image.repository is %q, the image of aws-cloud-controller-manager: set it to the image that `make image` writes, and image.tag to its tag" $image.repository) }}
{{- end -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "manager.args" -}}
{{- range .Values.args }}
{{- if hasPrefix "--migration" . }}
{{- fail (printf "args has %q: this chart installs neither the webhook nor the CloudProviderMigration; remove the flag, or use charts/outrigger" .) }}
{{- end }}
{{- end -}}
{{ toYaml .Values.args }}
{{- end }}

{{/* The roles with the rights that Outrigger's manager needs. */}}
{{- define "manager.role" -}}
{{ .Values.nameOverride }}:outrigger
{{- end }}

{{- define "manager.subjects" -}}
subjects:
  - kind: ServiceAccount
    name: {{ .Values.serviceAccountName }}
    namespace: {{ .Values.namespace }}
{{- end }}
