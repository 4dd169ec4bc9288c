package exec

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"trace/lang/output"
)

// schema is the schema of JSON lines.
var schema = sync.OnceValue(func() *jsonschema.Schema {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(output.Schema))
	if err != nil {
		panic(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		panic(err)
	}
	return c.MustCompile("schema.json")
})

// checkSchema checks each line against the schema.
func checkSchema(t testing.TB, lines string) {
	t.Helper()
	for line := range strings.Lines(lines) {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(line))
		if err != nil {
			t.Errorf("%s is no JSON: %v", line, err)
		} else if err := schema().Validate(v); err != nil {
			t.Errorf("%s%v", line, err)
		}
	}
}

// A key that the schema lacks is reported.
func TestSchemaForbids(t *testing.T) {
	for _, line := range []string{
		`{"type":"map","data":{"@":1},"columns":[],"rows":[],"fn":"count"}`,
		`{"type":"map","data":{"@":1},"columns":[]}`,
		`{"type":"map","data":{"x":1},"columns":[],"rows":[]}`,
		`{"type":"hist","data":{"@":[{"lo":1,"max":2,"count":1}]},"func":"hist","columns":[],"rows":[]}`,
		`{"type":"map","data":{"@":1},"columns":[],"rows":[{"key":[],"value":1,"more":2}]}`,
		`{"type":"event","probe":"a:b","time":null,"data":{},"nsecs":1}`,
		`{"type":"printf","text":"x"}`,
		`{"type":"mapp","data":{}}`,
		`{"type":"attached_probes","count":1,"data":{"probe":1}}`,
		`{"type":"attached_probes","data":{"probes":1}}`,
		`{"type":"lost_events","count":1,"data":{"events":1,"more":2}}`,
		`{"type":"lost_events","count":-1,"data":{"events":-1}}`,
		`{"type":"test_result","data":{"a":{"duration":1,"passed":true}}}`,
		`{"type":"test_result","data":{}}`,
		`{"type":"benchmark_result","data":{"a":{"average":1.5,"iters":2}}}`,
	} {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(line))
		if err != nil {
			t.Fatal(err)
		}
		if schema().Validate(v) == nil {
			t.Errorf("the schema allows %s", line)
		}
	}
}
