package scenarios

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestOperations compares the table of operations with the fields of Op and the methods of World:
// all have the same operations, in the same order and under the same names.
func TestOperations(t *testing.T) {
	fields := reflect.TypeFor[Op]()
	if fields.NumField() != len(operations) {
		t.Fatalf("Op has %d fields and there are %d operations", fields.NumField(), len(operations))
	}
	world := reflect.TypeFor[World]()
	for i := range fields.NumField() {
		field, o := fields.Field(i), &operations[i]
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); o.name != name {
			t.Errorf("operation %d is %s, and field %d of Op is %s", i, o.name, i, name)
			continue
		}
		op := new(Op)
		reflect.ValueOf(op).Elem().Field(i).Set(reflect.New(field.Type.Elem()))
		if set := op.set(); len(set) != 1 || set[0] != o {
			t.Errorf("an Op with %s is %v", o.name, namesOf(set))
			continue
		}
		if _, ok := world.MethodByName(field.Name); !ok {
			t.Errorf("World has no method %s", field.Name)
		}
		if o.text(op) == "" {
			t.Errorf("%s says nothing of what it does", o.name)
		}
		if o.orphan != "" && len(o.ends(op)) == 0 {
			t.Errorf("%s ends no state, so that no step can have begun one", o.name)
		}
	}
	if world.NumMethod() != len(operations) {
		t.Errorf("World has %d methods for %d operations", world.NumMethod(), len(operations))
	}
	for _, op := range []Op{{}, {Heal: new(HealOp), APIRestore: new(struct{})}} {
		if err := Perform(op, nil); err == nil {
			t.Errorf("%v was performed", op)
		}
	}
}

// TestStates shows that every state that an operation ends is one that another begins.
func TestStates(t *testing.T) {
	var begun []string
	each := func(do func(*operation, *Op)) {
		for i := range operations {
			op := new(Op)
			field := reflect.ValueOf(op).Elem().Field(i)
			field.Set(reflect.New(field.Type().Elem()))
			for j := range field.Elem().NumField() {
				switch operand := field.Elem().Field(j); operand.Kind() {
				case reflect.String:
					operand.SetString("x")
				case reflect.Int64: // a Duration
					operand.SetInt(int64(j + 1))
				case reflect.Bool:
					operand.SetBool(true)
				}
			}
			do(&operations[i], op)
		}
	}
	each(func(o *operation, op *Op) {
		if s := o.begins(op); s.clause != "" {
			begun = append(begun, s.clause)
		}
	})
	each(func(o *operation, op *Op) {
		for _, end := range o.ends(op) {
			if !slices.ContainsFunc(begun, func(clause string) bool { return Ended(clause, end) }) {
				t.Errorf("%s ends %q, which no operation begins", o.name, end)
			}
		}
	})
}
