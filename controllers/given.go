package controllers

import "fmt"

// Given lists the forms in which a package offers its controllers.
type Given interface {
	Module | []Module | func() Module | func() []Module
}

// ModulesOf returns the modules given in one of the forms of [Given].
func ModulesOf(given any) ([]Module, error) {
	switch m := given.(type) {
	case Module:
		return []Module{m}, nil
	case []Module:
		return m, nil
	case func() Module:
		return []Module{m()}, nil
	case func() []Module:
		return m(), nil
	}
	return nil, fmt.Errorf("a module is a controllers.Module, several, or a function without arguments that returns them; this is a %T", given)
}
