// Package storetest is a store for tests: it keeps objects in memory, and takes no request that
// isn't signed as S3 wants it.
package storetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/smithy-go/encoding/httpbinding"
)

// Store is one with a single bucket.
type Store struct {
	Bucket string
	// Page is how many objects a list has at most; 0 is a thousand.
	Page int
	// Fail, which may be nil, returns the status with which a request fails, or 0.
	Fail func(*http.Request) int
	// Saw, which may be nil, is called when an object was stored.
	Saw func(key string)

	mu          sync.Mutex // of what follows
	objects     map[string][]byte
	credentials aws.Credentials
}

// Start starts one, and returns the environment of those who use it.
func (s *Store) Start(t testing.TB) map[string]string {
	s.objects, s.credentials = make(map[string][]byte), aws.Credentials{AccessKeyID: "tester", SecretAccessKey: "for " + t.Name()}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return map[string]string{"AWS_ENDPOINT_URL": server.URL, "AWS_ACCESS_KEY_ID": s.credentials.AccessKeyID, "AWS_SECRET_ACCESS_KEY": s.credentials.SecretAccessKey, "AWS_REGION": "here"}
}

// Objects returns all that it has.
func (s *Store) Objects() map[string][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.objects)
}

// ServeHTTP implements http.Handler.
func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	code := 0
	if s.Fail != nil {
		code = s.Fail(r)
	}
	switch {
	case err != nil:
		refuse(w, http.StatusBadRequest, "IncompleteBody")
	case code != 0:
		refuse(w, code, "SlowDown")
	case !s.signed(r, body):
		refuse(w, http.StatusForbidden, "SignatureDoesNotMatch")
	case bucket != s.Bucket:
		refuse(w, http.StatusNotFound, "NoSuchBucket")
	case r.Method == http.MethodPut && key != "":
		s.mu.Lock()
		s.objects[key] = body
		s.mu.Unlock()
		if s.Saw != nil {
			s.Saw(key)
		}
	case r.Method == http.MethodGet && key != "":
		data, ok := s.Objects()[key]
		if !ok {
			refuse(w, http.StatusNotFound, "NoSuchKey")
			return
		}
		_, _ = w.Write(data) // else whoever asks has gone
	case r.Method == http.MethodGet && r.URL.Query().Get("list-type") == "2":
		s.list(w, r)
	default:
		refuse(w, http.StatusMethodNotAllowed, "MethodNotAllowed")
	}
}

// signed signs the same request again, at the same time.
func (s *Store) signed(r *http.Request, body []byte) bool {
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil || time.Since(at).Abs() > 15*time.Minute || r.Header.Get("X-Amz-Content-Sha256") != hash {
		return false
	}
	again := r.Clone(context.Background())
	again.URL.Host, again.URL.Scheme, again.Header = r.Host, "http", http.Header{"X-Amz-Content-Sha256": {hash}}
	again.URL.RawPath = httpbinding.EscapePath(r.URL.Path, false) // S3 takes no other one
	err = v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }).SignHTTP(r.Context(), s.credentials, again, hash, "s3", "here", at)
	return err == nil && again.Header.Get("Authorization") == r.Header.Get("Authorization")
}

func (s *Store) list(w http.ResponseWriter, r *http.Request) {
	type object struct{ Key string }
	page := struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		Contents              []object
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
	}{}
	most := s.Page
	if most == 0 {
		most = 1000
	}
	for _, key := range slices.Sorted(maps.Keys(s.Objects())) {
		if !strings.HasPrefix(key, r.URL.Query().Get("prefix")) || key <= r.URL.Query().Get("continuation-token") {
			continue
		}
		if len(page.Contents) == most {
			page.IsTruncated, page.NextContinuationToken = true, page.Contents[most-1].Key
			break
		}
		page.Contents = append(page.Contents, object{key})
	}
	_ = xml.NewEncoder(w).Encode(page) // else whoever asks has gone
}

func refuse(w http.ResponseWriter, code int, why string) {
	w.WriteHeader(code)
	_ = xml.NewEncoder(w).Encode(struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
	}{Code: why}) // else whoever asks has gone
}
