// Webhook-go is the comparison in `make bench`: what the benched part of Outrigger's webhook would be if it were written
// the usual Go way, with controller-runtime's admission server, typed objects, and a patch made by diffing.
//
// It knows its migrations from a file instead of watching them, follows no namespace and no lease, and has the rules for
// the benched objects only. All of that makes it lighter, so the comparison favours it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// latency is bounded as Outrigger's own histogram is, so that both are read the same way. The one that controller-runtime
// has knows only powers of ten.
var latency = prometheus.NewHistogram(prometheus.HistogramOpts{
	Name:    "webhook_go_review_duration_seconds",
	Help:    "Time from headers to answer",
	Buckets: []float64{0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 3},
})

func main() {
	bind := flag.String("bind-address", "127.0.0.1:8443", "`IP:PORT` of the admission server (HTTPS)")
	health := flag.String("health-bind-address", "127.0.0.1:8081", "`IP:PORT` of /readyz and /metrics (HTTP)")
	certificates := flag.String("cert-dir", "", "`directory` with tls.crt and tls.key")
	file := flag.String("migrations", "", "JSON `file` with a list of CloudProviderMigrations")
	flag.Parse()
	if err := serve(*bind, *health, *certificates, *file); err != nil {
		fmt.Fprintln(os.Stderr, "webhook-go:", err)
		os.Exit(1)
	}
}

func serve(bind, health, certificates, file string) error {
	logs := slog.NewJSONHandler(os.Stderr, nil)
	log.SetLogger(logr.FromSlogHandler(logs))
	migrations, err := read(file)
	if err != nil {
		return err
	}
	host, port, err := split(bind)
	if err != nil {
		return fmt.Errorf("--bind-address: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme)); err != nil {
		return err
	}
	metrics.Registry.MustRegister(latency)
	server := webhook.NewServer(webhook.Options{Host: host, Port: port, CertDir: certificates})
	hook := &admission.Webhook{Handler: &handler{
		decoder:    admission.NewDecoder(scheme),
		migrations: migrations,
		log:        slog.New(logs),
	}}
	server.Register("/mutate", timed(hook))

	ctx, cancel := context.WithCancelCause(signals.SetupSignalHandler())
	defer cancel(nil)
	go func() { cancel(probes(health, server)) }()
	if err := server.Start(ctx); err != nil {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

func read(file string) ([]migration, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--migrations: %w", err)
	}
	var migrations []migration
	if err := json.Unmarshal(text, &migrations); err != nil {
		return nil, fmt.Errorf("--migrations=%s: %w", file, err)
	}
	return migrations, nil
}

func split(address string) (string, int, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	port, err := strconv.Atoi(text)
	return host, port, err
}

func timed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		begin := time.Now()
		next.ServeHTTP(writer, request)
		latency.Observe(time.Since(begin).Seconds())
	})
}

func probes(address string, server webhook.Server) error {
	started := server.StartedChecker()
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(writer http.ResponseWriter, request *http.Request) {
		if err := started(request); err != nil {
			http.Error(writer, err.Error(), http.StatusServiceUnavailable)
		}
	})
	mux.Handle("/metrics", promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{}))
	return http.ListenAndServe(address, mux)
}
