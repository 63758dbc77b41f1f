{{- define "outrigger.labels" -}}
app.kubernetes.io/part-of: outrigger
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "outrigger.image" -}}
{{- with .Values.image -}}
{{ if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{/* Without a migration, the webhook has nothing to do. */}}
{{- define "outrigger.hasWebhook" -}}
{{- if .Values.migration }}yes{{ end -}}
{{- end }}

{{/* One object, with the chart's labels. Arguments: root, object. */}}
{{- define "outrigger.object" -}}
{{- $root := index . 0 }}
{{- $object := index . 1 }}
{{- $labels := mergeOverwrite (dict) ($object.metadata.labels | default dict) (include "outrigger.labels" $root | fromYaml) }}
{{- $_ := set $object.metadata "labels" $labels }}
---
{{ toYaml $object }}
{{- end }}

{{/* The text of a file of ../files, which is a copy of one of manifests/. Arguments: root, name. */}}
{{- define "outrigger.file" -}}
{{- $root := index . 0 }}
{{- $root.Files.Get (printf "files/%s.yaml" (index . 1)) | replace "outrigger-system" $root.Release.Namespace }}
{{- end }}

{{/*
The rules of a registration or a role, without the API groups and resources that no profile of the values selects. Resources that are
not in files/profiles.yaml stay. Arguments: root, rules.
*/}}
{{- define "outrigger.rules" -}}
{{- $root := index . 0 }}
{{- $table := $root.Files.Get "files/profiles.yaml" | fromYaml }}
{{- $kept := list }}
{{- range $rule := index . 1 }}
  {{- $groups := list }}
  {{- $resources := list }}
  {{- range $group := $rule.apiGroups }}
    {{- range $resource := $rule.resources }}
      {{- $profiles := get $table (printf "%s/%s" $group $resource) | default $root.Values.profiles }}
      {{- range $profiles }}
        {{- if has . $root.Values.profiles }}
          {{- $groups = append $groups $group }}
          {{- $resources = append $resources $resource }}
        {{- end }}
      {{- end }}
    {{- end }}
  {{- end }}
  {{- if $groups }}
    {{- $kept = append $kept (merge (dict "apiGroups" (uniq $groups) "resources" (uniq $resources)) $rule) }}
  {{- end }}
{{- end }}
{{- toYaml $kept }}
{{- end }}
