package event

// Source has values of fields: an [Event], or a table in tests.
type Source interface {
	// Get returns the value of f, or false if it is absent.
	Get(f *Field) (v any, ok bool)
}
