package fleet

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/fencelab/fencelab/fakebmc"
)

// UseRules adds the rules of presets, and those of a file if one is named.
func (o *Options) UseRules(presets []string, file string) error {
	for _, name := range presets {
		r := fakebmc.Rule{Name: name, Preset: name}
		if err := r.Validate(); err != nil {
			return fmt.Errorf("--preset %s: %w", name, err)
		}
		o.Rules = append(o.Rules, r)
	}
	if file == "" {
		return nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	more, err := fakebmc.ParseRules(data)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Clean(file), err)
	}
	o.Rules = append(o.Rules, more...)
	return nil
}

// UseCertificate reads the certificate of TLS and its private key from files. Two empty
// names leave all as it is.
func (o *Options) UseCertificate(certificate, key string) error {
	if (certificate == "") != (key == "") {
		return errors.New("--tls-certificate and --tls-key go together")
	}
	if certificate == "" {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
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
