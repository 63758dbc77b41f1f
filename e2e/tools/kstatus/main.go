// kstatus prints what the status library of Flux says about each object of the JSON array on its standard input: one line
// each, with the status and the message.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "kstatus:", err)
		os.Exit(1)
	}
}

func run() error {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}

	// This decoder keeps integers, which the library needs.
	var objects []interface{}
	if err := json.Unmarshal(text, &objects); err != nil {
		return err
	}

	for _, object := range objects {
		fields, isObject := object.(map[string]interface{})
		if !isObject {
			return fmt.Errorf("%v is no object", object)
		}
		result, err := status.Compute(&unstructured.Unstructured{Object: fields})
		if err != nil {
			return err
		}
		fmt.Printf("%s\t%s\n", result.Status, result.Message)
	}

	return nil
}
