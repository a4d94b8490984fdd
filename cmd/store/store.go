// Package store keeps files in a bucket of an S3-compatible store.
package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/smithy-go/encoding/httpbinding"
)

// Scheme begins the names of places in a store.
const Scheme = "s3://"

// Bucket is a place in one: a bucket, and what the names of its objects begin with.
type Bucket struct {
	name, prefix string
	endpoint     *url.URL
	region       string
	credentials  aws.Credentials
	client       *http.Client
}

// Variables lists the variables of the environment that name the store and who asks it, as other
// programs know them.
const Variables = "AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, and where they are needed AWS_SESSION_TOKEN and AWS_REGION"

// Parse reads the name of a place, such as s3://bucket/nights.
func Parse(place string) (bucket, prefix string, err error) {
	rest, ok := strings.CutPrefix(place, Scheme)
	bucket, prefix, _ = strings.Cut(rest, "/")
	if !ok || bucket == "" {
		return "", "", fmt.Errorf("%s: write %sBUCKET/PREFIX", place, Scheme)
	}
	return bucket, strings.Trim(prefix, "/"), nil
}

// Open returns a place in the store of the environment. It asks for nothing yet.
func Open(place string, environment func(string) string) (*Bucket, error) {
	b := &Bucket{region: cmp.Or(environment("AWS_REGION"), "us-east-1"), client: &http.Client{Timeout: patience}}
	var err error
	if b.name, b.prefix, err = Parse(place); err != nil {
		return nil, err
	}
	at := cmp.Or(environment("AWS_ENDPOINT_URL_S3"), environment("AWS_ENDPOINT_URL"))
	if b.endpoint, err = url.Parse(at); err != nil || b.endpoint.Host == "" {
		return nil, fmt.Errorf("%s: AWS_ENDPOINT_URL is %q, and not the URL of a store: set %s", place, at, Variables)
	}
	b.credentials = aws.Credentials{AccessKeyID: environment("AWS_ACCESS_KEY_ID"), SecretAccessKey: environment("AWS_SECRET_ACCESS_KEY"), SessionToken: environment("AWS_SESSION_TOKEN")}
	if !b.credentials.HasKeys() {
		return nil, fmt.Errorf("%s: there are no credentials for %s: set %s", place, b.endpoint.Host, Variables)
	}
	return b, nil
}

const (
	// patience bounds a request, tries is how often it is made, and pause is before the second one.
	patience = time.Minute
	tries    = 4
	pause    = 500 * time.Millisecond
)

// key is the whole name of an object.
func (b *Bucket) key(name string) string { return strings.TrimPrefix(b.prefix+"/"+name, "/") }

// do makes a request until the store answers it, and returns the answer if it is good.
func (b *Bucket) do(ctx context.Context, method, key string, query url.Values, body []byte) (*http.Response, error) {
	at := b.endpoint.JoinPath(b.name, key)
	at.RawPath = httpbinding.EscapePath(at.Path, false) // as the store signs it, which net/url doesn't
	at.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20")
	sum := sha256.Sum256(body)
	hash, wait := hex.EncodeToString(sum[:]), pause
	for try := 1; ; try++ {
		request, err := http.NewRequestWithContext(ctx, method, at.String(), bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		request.Header.Set("X-Amz-Content-Sha256", hash)
		if err := v4.NewSigner(unescaped).SignHTTP(ctx, b.credentials, request, hash, "s3", b.region, time.Now()); err != nil {
			return nil, err
		}
		answer, err := b.client.Do(request)
		if err == nil && answer.StatusCode < 300 {
			return answer, nil
		}
		if err == nil {
			err = refusal(answer)
		}
		var refused *refusedError
		if lasting := errors.As(err, &refused) && !refused.passes(); lasting || try == tries || ctx.Err() != nil {
			return nil, fmt.Errorf("%s %s%s/%s at %s: %w", method, Scheme, b.name, key, b.endpoint.Host, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait *= 2
	}
}

// unescaped has paths signed as S3 wants them: escaped once.
func unescaped(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }

// refusedError is an answer that isn't good.
type refusedError struct {
	code          int
	Code, Message string
}

func refusal(answer *http.Response) error {
	defer func() { _ = answer.Body.Close() }() // the connection is lost at worst
	e := &refusedError{code: answer.StatusCode}
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<16)) // the status says enough
	_ = xml.Unmarshal(text, e)
	return e
}

func (e *refusedError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("%d %s %s", e.code, cmp.Or(e.Code, http.StatusText(e.code)), e.Message))
}

// passes says that the same request may succeed later.
func (e *refusedError) passes() bool {
	return e.code >= 500 || e.code == http.StatusTooManyRequests || e.code == http.StatusRequestTimeout
}

// Is lets callers ask for fs.ErrNotExist.
func (e *refusedError) Is(target error) bool {
	return target == fs.ErrNotExist && e.code == http.StatusNotFound && e.Code != "NoSuchBucket"
}

// Put stores a file, whole or not at all.
func (b *Bucket) Put(ctx context.Context, name string, data []byte) error {
	answer, err := b.do(ctx, http.MethodPut, b.key(name), nil, data)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// Get opens a file. The error is fs.ErrNotExist if there is none.
func (b *Bucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	answer, err := b.do(ctx, http.MethodGet, b.key(name), nil, nil)
	if err != nil {
		return nil, err
	}
	return answer.Body, nil
}

// List returns the names of all files.
func (b *Bucket) List(ctx context.Context) (names []string, err error) {
	below := b.key("")
	for query := (url.Values{"list-type": {"2"}, "prefix": {below}}); ; {
		answer, err := b.do(ctx, http.MethodGet, "", query, nil)
		if err != nil {
			return nil, err
		}
		var page struct {
			Contents              []struct{ Key string }
			IsTruncated           bool
			NextContinuationToken string
		}
		err = xml.NewDecoder(answer.Body).Decode(&page)
		if err = errors.Join(err, answer.Body.Close()); err != nil {
			return nil, fmt.Errorf("list %s%s/%s: %w", Scheme, b.name, below, err)
		}
		for _, object := range page.Contents {
			names = append(names, strings.TrimPrefix(object.Key, below))
		}
		if !page.IsTruncated || page.NextContinuationToken == "" {
			return names, nil
		}
		query.Set("continuation-token", page.NextContinuationToken)
	}
}
