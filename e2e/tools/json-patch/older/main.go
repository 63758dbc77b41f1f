package main

import (
	jsonpatch "github.com/evanphx/json-patch"
	"outrigger.dev/e2e/tools/json-patch/server"
)

func main() {
	server.Run(func(patch, object []byte) ([]byte, error) {
		operations, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			return nil, err
		}
		return operations.Apply(object)
	})
}
