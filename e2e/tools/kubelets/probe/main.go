// Probe is a program for Pods: it reads the version of its API server with its service account, and ends.
// Its termination message is the response. An argument replaces the address of the Service `kubernetes`.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

const account = "/var/run/secrets/kubernetes.io/serviceaccount/"

func main() {
	address := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	for {
		text, err := version(address)
		if err == nil {
			message := fmt.Sprintf("%s: %s", address, text)
			if err := os.WriteFile("/dev/termination-log", []byte(message), 0o644); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
		fmt.Fprintln(os.Stderr, err)
		time.Sleep(time.Second)
	}
}

func version(address string) (string, error) {
	token, err := os.ReadFile(account + "token")
	if err != nil {
		return "", err
	}
	authority, err := os.ReadFile(account + "ca.crt")
	if err != nil {
		return "", err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return "", fmt.Errorf("%sca.crt contains no certificate", account)
	}
	client := http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
	}
	request, err := http.NewRequest(http.MethodGet, "https://"+address+"/version", nil)
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer "+string(token))
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, text)
	}
	return string(text), err
}
