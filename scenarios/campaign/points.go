package campaign

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
)

// Point is something that a schedule may reach: that a controller takes a row of its
// decision table, which is an action for certain facts; or that it does so right after
// another row, about the same key. It is a hash of them.
type Point uint32

// Points are a set of them, sorted.
type Points []Point

// MarshalText implements encoding.TextMarshaler: they are many.
func (p Points) MarshalText() ([]byte, error) {
	data := make([]byte, 0, 4*len(p))
	for _, point := range p {
		data = binary.LittleEndian.AppendUint32(data, uint32(point))
	}
	return base64.StdEncoding.AppendEncode(nil, data), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Points) UnmarshalText(text []byte) error {
	data, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil || len(data)%4 != 0 {
		return errors.Join(errors.New("read what a schedule reached: these are no points"), err)
	}
	*p = make(Points, len(data)/4)
	for i := range *p {
		(*p)[i] = Point(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return nil
}
