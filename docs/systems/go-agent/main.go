// An agent for every Node: it feeds the watchdog of its host for as long as it hears the API
// server. Whoever releases the workload of a Node relies on it.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

const account = "/var/run/secrets/kubernetes.io/serviceaccount/"

func main() {
	ca := x509.NewCertPool()
	ca.AppendCertsFromPEM(read(account + "ca.crt"))
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca}}}
	server := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	node := "https://" + server + "/api/v1/nodes/" + os.Getenv("NODE_NAME")

	// Opening it arms it, and nothing disarms it any more.
	watchdog, err := os.OpenFile("/dev/watchdog", os.O_WRONLY, 0)
	if err != nil {
		log.Fatal(err)
	}
	for ; ; time.Sleep(time.Second) {
		request, err := http.NewRequest(http.MethodGet, node, nil)
		if err != nil {
			log.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(read(account+"token"))))
		response, err := client.Do(request)
		if err != nil {
			log.Print(err)
			continue // it is not fed
		}
		response.Body.Close()
		if _, err := watchdog.Write([]byte{0}); err != nil {
			log.Fatal(err)
		}
	}
}

func read(file string) []byte {
	content, err := os.ReadFile(file)
	if err != nil {
		log.Fatal(err)
	}
	return content
}
