package fleet

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fencelab/fencelab/fakebmc"
)

// useRules adds the rules of presets, and those of a file if one is named.
func (o *Options) useRules(ctx context.Context) error {
	for _, name := range o.presets {
		r := fakebmc.Rule{Name: name, Preset: name}
		if err := errors.Join(r.Validate(), o.serves(r)); err != nil {
			return fmt.Errorf("--preset %s: %w", name, err)
		}
		o.Rules = append(o.Rules, r)
	}
	if o.rulesFile == "" {
		return nil
	}
	more, lines, err := readRules(ctx, o.rulesFile)
	if err != nil {
		return err
	}
	var errs []error
	for i, r := range more {
		if err := o.serves(r); err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", o.rulesFile, lines[i], err))
		}
	}
	o.Rules = append(o.Rules, more...)
	return few(errors.Join(errs...))
}

// serves refuses a rule that is for clients whom nobody serves.
func (o *Options) serves(r fakebmc.Rule) error {
	if key := r.Needs()[fakebmc.NeedsIPMI]; key != "" && o.IPMI == "" {
		return fmt.Errorf("rule %q: its %s is for clients that come by IPMI, which is not served; use --ipmi", r.Name, key)
	}
	return nil
}

const (
	maxRulesFile = 1 << 20
	maxProblems  = 10 // of a file with rules that are reported
)

// readRules reads a file that may be a pipe without a writer, or have no end, and tells
// the line at which each rule begins.
func readRules(ctx context.Context, name string) (rules []fakebmc.Rule, lines []int, err error) {
	type result struct {
		data []byte
		err  error
	}
	done := make(chan result, 1)
	go func() { // which ends with the process, if the file never does
		file, err := os.Open(name)
		if err != nil {
			done <- result{nil, err}
			return
		}
		defer file.Close()
		data, err := io.ReadAll(io.LimitReader(file, maxRulesFile+1))
		done <- result{data, err}
	}()
	var r result
	select {
	case r = <-done:
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("read %s: %w", name, ctx.Err())
	}
	if r.err != nil {
		return nil, nil, r.err
	}
	if len(r.data) > maxRulesFile {
		return nil, nil, fmt.Errorf("%s: it has more than %d bytes; a preset or a glob may stand for many of its rules", name, maxRulesFile)
	}
	// Not one of the libraries to which Off is no text but false.
	var list any
	var root yaml.Node
	document := yaml.NewDecoder(bytes.NewReader(r.data))
	err = document.Decode(&root)
	if err == nil {
		err = root.Decode(&list)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	if document.Decode(new(any)) != io.EOF {
		return nil, nil, fmt.Errorf("%s: it has more than one document; write one list", name)
	}
	data, err := json.Marshal(list)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	if rules, err = fakebmc.ParseRules(data); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, few(err))
	}
	if len(rules) == 0 {
		return nil, nil, fmt.Errorf("%s: it has no rule; write a list of them", name)
	}
	for _, item := range root.Content[0].Content {
		lines = append(lines, item.Line)
	}
	return rules, lines, nil
}

// few leaves out what nobody reads of many problems.
func few(err error) error {
	if err == nil {
		return nil
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) <= maxProblems {
		return err
	}
	return fmt.Errorf("%s\nand %d more", strings.Join(lines[:maxProblems], "\n"), len(lines)-maxProblems)
}

// OpenLog opens the file that --log names, if it does, for each request's record. Close
// it after Run.
func (o *Options) OpenLog() (io.Closer, error) {
	if o.logFile == "" {
		return io.NopCloser(nil), nil
	}
	f, err := os.OpenFile(o.logFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	o.Records = f
	return f, nil
}

// useCertificate reads the certificate of TLS and its private key from files, if they are
// named.
func (o *Options) useCertificate() error {
	if (o.certificate == "") != (o.key == "") {
		return errors.New("--tls-certificate and --tls-key go together")
	}
	if o.certificate == "" {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(o.certificate, o.key)
	if err != nil {
		return fmt.Errorf("read the certificate: %w", err)
	}
	o.TLS, o.Certificate = true, &pair
	return nil
}

// Environmental reports whether an error of Run is that of this machine, such as an
// address that is taken, and not one of the options.
func Environmental(err error) bool {
	var network *net.OpError
	var file *fs.PathError
	return errors.As(err, &network) || errors.As(err, &file)
}
