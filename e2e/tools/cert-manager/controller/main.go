// The controllers of cert-manager that issue certificates from self-signed and CA issuers. cert-manager's own program
// is in a Go module that no proxy serves: https://github.com/cert-manager/cert-manager/tree/v1.21.2/cmd/controller
//
// ACME, Vault, Venafi and ClusterIssuers are left out, and so are leader election and metrics.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/cert-manager/cert-manager/pkg/controller"
	"golang.org/x/sync/errgroup"

	// Each registers itself.
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
)

// Workers of each controller, cert-manager's default.
const workers = 5

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file with the address of the API server and the credentials")
	flag.Parse()

	if err := run(*kubeconfig); err != nil {
		fmt.Fprintln(os.Stderr, "cert-manager-controller:", err)
		os.Exit(1)
	}
}

func run(kubeconfig string) error {
	if kubeconfig == "" {
		return fmt.Errorf("--kubeconfig is empty: name a file")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)

	factory, err := controller.NewContextFactory(ctx, options(kubeconfig))
	if err != nil {
		return err
	}
	// Informers exist as soon as a controller asked for them, so all are built before the first list.
	built := map[string]controller.Interface{}
	for name, construct := range controller.Known() {
		if built[name], err = construct(factory); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	root, err := factory.Build()
	if err != nil {
		return err
	}
	root.SharedInformerFactory.Start(ctx.Done())
	root.KubeSharedInformerFactory.Start(ctx.Done())

	for name, one := range built {
		group.Go(func() error {
			fmt.Fprintln(os.Stderr, "starting controller", name)
			return one.Run(workers, ctx)
		})
	}
	return group.Wait()
}

// cert-manager's defaults:
// https://github.com/cert-manager/cert-manager/blob/v1.21.2/internal/apis/config/controller/v1alpha1/defaults.go
func options(kubeconfig string) controller.ContextOptions {
	return controller.ContextOptions{
		Kubeconfig:         kubeconfig,
		KubernetesAPIQPS:   20,
		KubernetesAPIBurst: 50,
		CertificateOptions: controller.CertificateOptions{
			CopiedAnnotationPrefixes:                 []string{"*", "-kubectl.kubernetes.io/", "-fluxcd.io/", "-argocd.argoproj.io/"},
			CertificateRequestMinimumBackoffDuration: time.Hour,
			CertificateRequestMaximumBackoffDuration: 32 * time.Hour,
		},
	}
}
