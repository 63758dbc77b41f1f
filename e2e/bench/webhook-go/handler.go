package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	uninitialized    = "node.cloudprovider.kubernetes.io/uninitialized"
	undoAnnotation   = "outrigger.dev/undo"
	namespaceLabel   = "kubernetes.io/metadata.name"
	manager          = "kube-controller-manager"
	hosted           = "HostedControlPlane"
	nodes            = "Nodes"
	migratePhase     = "Migrate"
	completePhase    = "Complete"
	taintEveryNode   = "Always"
	inTreeProvider   = "aws"
	externalProvider = "external"
)

// A migration, as far as the benched objects need it.
type migration struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Phase     string   `json:"phase"`
		Downtime  bool     `json:"downtime"`
		NodeTaint string   `json:"nodeTaint"`
		Targets   []target `json:"targets"`
	} `json:"spec"`
}

type target struct {
	Profile           string                `json:"profile"`
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector"`
	ObjectSelector    *metav1.LabelSelector `json:"objectSelector"`
}

type handler struct {
	decoder    admission.Decoder
	migrations []migration
	log        *slog.Logger
}

// Handle decides one review.
func (h *handler) Handle(_ context.Context, request admission.Request) admission.Response {
	if request.SubResource != "" {
		return admission.Allowed("")
	}
	switch kind := request.Kind; {
	case kind.Group == "apps" && kind.Kind == "Deployment":
		return h.deployment(request)
	case kind.Group == "" && kind.Kind == "Pod":
		return h.pod(request)
	case kind.Group == "" && kind.Kind == "Node" && request.Operation == "CREATE":
		return h.node(request)
	}
	return admission.Allowed("")
}

func (h *handler) deployment(request admission.Request) admission.Response {
	deployment := &appsv1.Deployment{}
	if err := h.decoder.Decode(request, deployment); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	template := &deployment.Spec.Template
	return h.template(request, deployment, &template.ObjectMeta, &template.Spec)
}

func (h *handler) pod(request admission.Request) admission.Response {
	pod := &corev1.Pod{}
	if err := h.decoder.Decode(request, pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	return h.template(request, pod, &pod.ObjectMeta, &pod.Spec)
}

func (h *handler) template(request admission.Request, object client.Object, meta *metav1.ObjectMeta, spec *corev1.PodSpec) admission.Response {
	container := managerIn(spec)
	if container == nil {
		return admission.Allowed("")
	}
	found := h.find(hosted, request.Namespace, object.GetLabels())
	if found == nil || !found.external() || !found.Spec.Downtime {
		return admission.Allowed("")
	}
	line := commandLine{list: "command", tokens: container.Command}
	line.makeExternal()
	if len(line.edits) == 0 {
		return admission.Allowed("")
	}
	container.Command = line.tokens
	undo, err := line.undo(container.Name)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	if meta.Annotations == nil {
		meta.Annotations = map[string]string{}
	}
	meta.Annotations[undoAnnotation] = undo
	return h.patched(request, object, found)
}

func (h *handler) node(request admission.Request) admission.Response {
	node := &corev1.Node{}
	if err := h.decoder.Decode(request, node); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	found := h.find(nodes, "", node.Labels)
	if found == nil || !found.external() || found.Spec.NodeTaint != taintEveryNode || node.Spec.ProviderID != "" {
		return admission.Allowed("")
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key == uninitialized {
			return admission.Allowed("")
		}
	}
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{
		Key: uninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule,
	})
	return h.patched(request, node, found)
}

func (h *handler) patched(request admission.Request, object client.Object, found *migration) admission.Response {
	text, err := json.Marshal(object)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	h.log.Info("reviewed", "kind", request.Kind.Kind, "namespace", request.Namespace, "name", request.Name, "decision", "changed")
	response := admission.PatchResponseFromRaw(request.Object.Raw, text)
	response.AuditAnnotations = map[string]string{
		"migration": found.Metadata.Name, "phase": found.Spec.Phase, "decision": "changed",
	}
	return response
}

func (m *migration) external() bool {
	return m.Spec.Phase == migratePhase || m.Spec.Phase == completePhase
}

// find returns the one migration with a target of the profile for the object; none when there are several.
func (h *handler) find(profile, namespace string, labels map[string]string) *migration {
	var found *migration
	for index := range h.migrations {
		for _, target := range h.migrations[index].Spec.Targets {
			if target.Profile != profile || !matches(target.ObjectSelector, labels) ||
				!matches(target.NamespaceSelector, map[string]string{namespaceLabel: namespace}) {
				continue
			}
			if found != nil {
				return nil
			}
			found = &h.migrations[index]
			break
		}
	}
	return found
}

func matches(selector *metav1.LabelSelector, labels map[string]string) bool {
	if selector == nil {
		return true
	}
	for key, value := range selector.MatchLabels {
		if labels[key] != value {
			return false
		}
	}
	return true
}

// managerIn returns the container that runs the kube-controller-manager of a version with the in-tree AWS provider.
func managerIn(spec *corev1.PodSpec) *corev1.Container {
	for index := range spec.Containers {
		container := &spec.Containers[index]
		if container.Name != manager || len(container.Command) == 0 {
			continue
		}
		program := container.Command[0]
		if program[strings.LastIndexByte(program, '/')+1:] == manager && strings.Contains(container.Image, ":v1.26.") {
			return container
		}
	}
	return nil
}
