// Package server applies JSON patches as kube-apiserver does to answers of mutating webhooks: with the JSON patch library, the
// encoder and the decoder of its release. Module file and main package decide the release:
//
//	json-patch-1.22.mod  ./older  Kubernetes 1.22: github.com/evanphx/json-patch v4.11.0, encoder json-iterator
//	json-patch-1.26.mod  ./older  Kubernetes 1.23 to 1.30: v4.12.0, encoding/json
//	go.mod               ./newer  Kubernetes 1.36: gopkg.in/evanphx/json-patch.v4 v4.13.0
//
// Each line of stdin is a request, each line of stdout its answer. The steps are those of callAttrMutatingHook:
// https://github.com/kubernetes/apiserver/blob/v0.36.3/pkg/admission/plugin/webhook/mutating/dispatcher.go
package server

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured/unstructuredscheme"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
)

type request struct {
	// As a client writes it.
	Object json.RawMessage `json:"object"`
	// As in the response of a webhook; none: the object is only encoded.
	Patch json.RawMessage `json:"patch"`
}

type answer struct {
	// As the API server sends it to webhooks, and as it applies the patch to it. A text, because the bytes count.
	Sent string `json:"sent"`
	// The same after the patch, decoded and encoded again.
	Stored string `json:"stored,omitempty"`
	// The API server refuses the write.
	Error string `json:"error,omitempty"`
}

// Kinds with a Go type. All others are custom resources.
var builtin = runtime.NewScheme()

// Apply decodes a patch and applies it to the text of an object.
type Apply func(patch, object []byte) ([]byte, error)

// Run answers until the end of stdin.
func Run(apply Apply) {
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, storagev1.AddToScheme} {
		if err := add(builtin); err != nil {
			fatal(err)
		}
	}

	in, out := bufio.NewReaderSize(os.Stdin, 1<<20), bufio.NewWriter(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var wanted request
		if err := json.Unmarshal(line, &wanted); err != nil {
			fatal(err)
		}
		text, err := json.Marshal(answerTo(wanted, apply))
		if err != nil {
			fatal(err)
		}
		out.Write(text)
		out.WriteByte('\n')
		if err := out.Flush(); err != nil {
			fatal(err)
		}
	}
}

func answerTo(wanted request, apply Apply) answer {
	codec, into, err := codecOf(wanted.Object)
	if err != nil {
		return answer{Error: err.Error()}
	}
	sent, err := again(codec, into, wanted.Object)
	if err != nil {
		return answer{Error: err.Error()}
	}
	if len(wanted.Patch) == 0 {
		return answer{Sent: string(sent)}
	}

	patched, err := apply(wanted.Patch, sent)
	if err != nil {
		return answer{Sent: string(sent), Error: err.Error()}
	}
	_, into, err = codecOf(wanted.Object)
	if err != nil {
		return answer{Sent: string(sent), Error: err.Error()}
	}
	stored, err := again(codec, into, patched)
	if err != nil {
		return answer{Sent: string(sent), Error: err.Error()}
	}
	return answer{Sent: string(sent), Stored: string(stored)}
}

// The serializer for the kind of an object, and an empty object of it.
func codecOf(object []byte) (runtime.Serializer, runtime.Object, error) {
	kind, err := serializer.DefaultMetaFactory.Interpret(object)
	if err != nil {
		return nil, nil, err
	}
	if into, err := builtin.New(*kind); err == nil {
		return codec(builtin, builtin), into, nil
	}
	return codec(unstructuredscheme.NewUnstructuredCreator(), unstructuredscheme.NewUnstructuredObjectTyper()), &unstructured.Unstructured{}, nil
}

func codec(creater runtime.ObjectCreater, typer runtime.ObjectTyper) runtime.Serializer {
	return serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, creater, typer, serializer.SerializerOptions{})
}

// Decodes and encodes.
func again(codec runtime.Serializer, into runtime.Object, text []byte) ([]byte, error) {
	var none *schema.GroupVersionKind
	object, _, err := codec.Decode(text, none, into)
	if err != nil {
		return nil, err
	}
	return runtime.Encode(codec, object)
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
