package family

import (
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

// fill gives everything below v a value, so that a field that the form lacks is seen.
func fill(r *rand.Rand, v reflect.Value) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(r.Int64N(1<<33)-1<<32, r.Int64N(1e9)).UTC()))
	case v.Type() == reflect.TypeFor[Kind]():
		v.SetUint(uint64(Distribution))
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			fill(r, v.Field(i))
		}
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 3, 3))
		for i := range 3 {
			fill(r, v.Index(i))
		}
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(r, v.Elem())
	case v.CanInt():
		v.SetInt(r.Int64() >> r.IntN(64))
	case v.CanUint():
		v.SetUint(r.Uint64() >> r.IntN(64))
	case v.CanFloat():
		v.SetFloat(r.NormFloat64())
	case v.Kind() == reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	default:
		v.SetString([]string{"", "a", "b\x00\n", "/kubepods/ü", strings.Repeat("long", 100)}[r.IntN(5)])
	}
}

func filled(r *rand.Rand) (s Set) {
	fill(r, reflect.ValueOf(&s).Elem())
	return s
}

func bytesOf(t testing.TB, s Set) []byte {
	t.Helper()
	data, err := s.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Writing leaves a set as it is: several may write one at once. The race detector sees any change.
func TestSetWrittenAtOnce(t *testing.T) {
	s := filled(rand.New(rand.NewPCG(3, 4)))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { bytesOf(t, s) })
	}
	all.Wait()
}

// Another process gets what was sent.
func TestSet(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		sent := filled(r)
		var got Set
		if err := got.UnmarshalBinary(bytesOf(t, sent)); err != nil || !reflect.DeepEqual(got, sent) {
			t.Fatalf("%v: got %+v, want %+v", err, got, sent)
		}
	}
	edges := Set{{Name: "n", Kind: Gauge, Series: []Series{{Value: math.Inf(-1)}, {Value: math.NaN(), Count: math.MaxUint64}}}}
	var got Set
	if err := got.UnmarshalBinary(bytesOf(t, edges)); err != nil || !got[0].Series[0].Created.IsZero() || !math.IsInf(got[0].Series[0].Value, -1) ||
		!math.IsNaN(got[0].Series[1].Value) || got[0].Series[1].Count != math.MaxUint64 {
		t.Errorf("%v: %+v", err, got)
	}
	if err := got.UnmarshalBinary(bytesOf(t, nil)); err != nil || len(got) != 0 {
		t.Errorf("%v: %+v", err, got)
	}
}

// What is cut, or does not fit together, is an error. A text becomes valid.
func TestBrokenSet(t *testing.T) {
	data := bytesOf(t, filled(rand.New(rand.NewPCG(3, 4))))
	var got Set
	for n := range data {
		if err := got.UnmarshalBinary(data[:n]); err == nil {
			t.Fatalf("%d of %d bytes are read", n, len(data))
		}
	}
	one := bytesOf(t, Set{{Name: "a", Kind: Counter, Series: []Series{{}}}})
	for want, data := range map[string][]byte{
		"families: a number ends too early":                         {form},
		"families: a float ends too early":                          one[:len(one)-3],
		"these are no families: are both processes of one version?": []byte(`[{"Name":"x"}]`),
		"families: 1 bytes are left":                                append(data, 0),
		"families: a list is longer than what is left":              {form, 0xfe, 0xff, 0xff, 0xff, 0xf},
		"families: a text is longer than what is left":              {form, 2, 0, 0x7e},
		"families: there is no text 1":                              {form, 2, 2},
		"families: a has series of another kind":                    bytesOf(t, Set{{Name: "a", Kind: 4}}),
		"families: b has series of another kind":                    bytesOf(t, Set{{Name: "b", Labels: []string{"x"}, Series: []Series{{}}}}),
		"families: c has series of another kind":                    bytesOf(t, Set{{Name: "c", Kind: Distribution, Series: []Series{{}}}}),
	} {
		if err := got.UnmarshalBinary(data); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := got.UnmarshalBinary(bytesOf(t, Set{{Name: "a\xff"}})); err != nil || got[0].Name != "a\uFFFD" {
		t.Errorf("%v: %+v", err, got)
	}
}

// The process that reads a set believes nothing of it. What is read can be sent.
func FuzzSet(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 5 {
		f.Add(bytesOf(f, filled(r)))
	}
	f.Add([]byte{form, 0xfe, 0xff, 0xff, 0xff, 0xf})
	f.Fuzz(func(t *testing.T, data []byte) {
		var s, again Set
		if s.UnmarshalBinary(data) != nil {
			return
		}
		if err := again.UnmarshalBinary(bytesOf(t, s)); err != nil || len(again) != len(s) {
			t.Errorf("%v: %+v, want %+v", err, again, s)
		}
	})
}
