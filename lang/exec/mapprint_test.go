package exec

import (
	"bytes"
	"io"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"trace/lang/agg"
	"trace/lang/check"
	"trace/lang/format"
	"trace/lang/ir"
	"trace/lang/langtest"
	"trace/lang/output"
	"trace/lang/result"
	"trace/probes/event"
)

// aggregation makes a map of an aggregation of values of type t.
func aggregation(a agg.Agg, t event.Type, key ...event.Type) *ir.Map {
	a.Signed = t.Kind == event.Int
	return &ir.Map{Name: "@x", Agg: &a, Key: columns(key...), Value: columns(t)}
}

func scalarMap(t event.Type, key ...event.Type) *ir.Map {
	return &ir.Map{Name: "@x", Key: columns(key...), Value: columns(t)}
}

// filled makes an element of aggregated values. Negative ones are given as uint64.
func filled(m *ir.Map, key []any, values ...uint64) ir.Element {
	e := ir.Element{Key: key, State: make([]uint64, m.Agg.Words())}
	for _, v := range values {
		m.Agg.Add(e.State, v)
	}
	return e
}

func negative(n int64) uint64 { return uint64(-n) }

func printed(t testing.TB, f output.Format, m *ir.Map, elements []ir.Element, o ir.MapOptions) string {
	t.Helper()
	var b bytes.Buffer
	if err := output.NewPrinter(&b, f, event.NewWallClock(time.Time{})).Map(result.At(0), m.Table(elements, o)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestMap has a map of every shape. The histograms are from bpftrace's own tests (tests/runtime/outputs, tests/output.cpp).
func TestMap(t *testing.T) {
	keyed := func(f agg.Func, typ event.Type) *ir.Map {
		return aggregation(agg.Agg{Func: f}, typ, langtest.Str16)
	}
	counts, sums, avgs, minima := keyed(agg.Count{}, langtest.U64), keyed(agg.Sum{}, langtest.Size), keyed(agg.Avg{}, langtest.S64), keyed(agg.NewMin(), langtest.Opcode)
	stats, rates := keyed(agg.Stats{}, langtest.Ns), keyed(agg.Rate{}, langtest.U64)
	ranked := keyed(agg.TopK{N: 2}, langtest.Ns)
	quantiles := keyed(agg.NewQuantile(50, 99.9), langtest.Ns)
	signedQuantile := aggregation(agg.Agg{Func: agg.NewQuantile(50, 90)}, langtest.S64)
	bytesRate := aggregation(agg.Agg{Func: agg.Rate{}}, langtest.Size)
	durationRate := aggregation(agg.Agg{Func: agg.Rate{}}, event.Type{Kind: event.Int, Size: 8, Unit: event.Nanoseconds})
	gauge := aggregation(agg.Agg{Func: agg.Gauge{}}, langtest.S64)
	count, avg, statsOfNone := aggregation(agg.Agg{Func: agg.Count{}}, langtest.U64), aggregation(agg.Agg{Func: agg.Avg{}}, langtest.Ns), aggregation(agg.Agg{Func: agg.Stats{}}, langtest.U64)
	hist, histK := aggregation(agg.Agg{Func: agg.NewHist(0, 0, 0)}, langtest.S64), aggregation(agg.Agg{Func: agg.NewHist(1, 0, 0)}, langtest.U64)
	histNs := aggregation(agg.Agg{Func: agg.NewHist(0, 0, 0)}, langtest.Ns, langtest.Opcode)
	histMin := aggregation(agg.Agg{Func: agg.NewHist(0, 9, 4096)}, langtest.Size)
	lhist := aggregation(agg.Agg{Func: agg.NewLHist(0, 10, 2)}, langtest.S64)
	lhistK := aggregation(agg.Agg{Func: agg.NewLHist(0, 5<<10, 1<<10)}, langtest.U64)
	lhistNs := aggregation(agg.Agg{Func: agg.NewLHist(1_000_000, 1_002_500, 1000)}, langtest.Ns)
	signedSum := aggregation(agg.Agg{Func: agg.Sum{}}, langtest.S64)
	sampled := func(m *ir.Map) *ir.Map {
		part := *m
		part.Sampled = true
		return &part
	}
	pairs := &ir.Map{Name: "@x", Key: columns(langtest.Opcode, langtest.Gid), Value: columns(langtest.Opcode, langtest.Str16), IsTuple: true}
	for _, test := range []struct {
		name       string
		m          *ir.Map
		elements   []ir.Element
		o          ir.MapOptions
		text, json string
	}{
		{"count", counts, []ir.Element{filled(counts, []any{"b"}, 1, 1, 1), filled(counts, []any{"a b"}, 1), filled(counts, []any{nil}, 1)}, ir.MapOptions{},
			"@x[-]: 1\n@x[a b]: 1\n@x[b]: 3\n",
			`{"type":"map","data":{"@x":{"":1,"a b":1,"b":3}},"func":"count","columns":[""],"rows":[{"key":[null],"value":1},{"key":["a b"],"value":1},{"key":["b"],"value":3}]}`},
		{"no key", count, []ir.Element{filled(count, nil, 1, 1)}, ir.MapOptions{}, "@x: 2\n",
			`{"type":"map","data":{"@x":2},"func":"count","columns":[],"rows":[{"key":[],"value":2}]}`},
		{"no key, no entry", count, nil, ir.MapOptions{}, "@x: 0\n", `{"type":"map","data":{"@x":0},"func":"count","columns":[],"rows":[{"key":[],"value":0}]}`},
		{"no entry", counts, nil, ir.MapOptions{}, "", `{"type":"map","data":{"@x":{}},"func":"count","columns":[""],"rows":[]}`},
		{"sum", sums, []ir.Element{filled(sums, []any{"a"}, 4096, 4096)}, ir.MapOptions{}, "@x[a]: 8KiB\n",
			`{"type":"map","data":{"@x":{"a":8192}},"func":"sum","unit":"bytes","columns":[""],"rows":[{"key":["a"],"value":8192}]}`},
		{"sum, divided", sums, []ir.Element{filled(sums, []any{"a"}, 4096, 4096)}, ir.MapOptions{Div: 1000}, "@x[a]: 8\n",
			`{"type":"map","data":{"@x":{"a":8}},"func":"sum","columns":[""],"rows":[{"key":["a"],"value":8}]}`},
		{"avg", avgs, []ir.Element{filled(avgs, []any{"a"}, negative(3), negative(4)), filled(avgs, []any{"b"}, negative(9))}, ir.MapOptions{}, "@x[b]: -9\n@x[a]: -3\n",
			`{"type":"stats","data":{"@x":{"b":-9,"a":-3}},"func":"avg","columns":[""],"rows":[{"key":["b"],"value":-9},{"key":["a"],"value":-3}]}`},
		{"avg of nothing", avg, nil, ir.MapOptions{}, "@x: -\n", `{"type":"stats","data":{"@x":null},"func":"avg","unit":"ns","columns":[],"rows":[{"key":[],"value":null}]}`},
		{"min", minima, []ir.Element{filled(minima, []any{"a"}, 3, 2), filled(minima, []any{"b"}), filled(minima, []any{"c"}, 1)}, ir.MapOptions{},
			"@x[b]: -\n@x[c]: write\n@x[a]: read\n",
			`{"type":"map","data":{"@x":{"b":null,"c":"write","a":"read"}},"func":"min","columns":[""],"rows":[{"key":["b"],"value":null},{"key":["c"],"value":"write"},{"key":["a"],"value":"read"}]}`},
		{"stats", stats, []ir.Element{filled(stats, []any{"a"}, 1000, 2000, 3001)}, ir.MapOptions{}, "@x[a]: { .count = 3, .average = 2us, .total = 6us }\n",
			`{"type":"stats","data":{"@x":{"a":{"count":3,"average":2000,"total":6001}}},"func":"stats","unit":"ns","columns":[""],"rows":[{"key":["a"],"count":3,"average":2000,"total":6001}]}`},
		{"stats, divided", stats, []ir.Element{filled(stats, []any{"a"}, 1000, 2000, 3001)}, ir.MapOptions{Div: 10}, "@x[a]: { .count = 3, .average = 200, .total = 6us }\n",
			`{"type":"stats","data":{"@x":{"a":{"count":3,"average":200,"total":6001}}},"func":"stats","columns":[""],"rows":[{"key":["a"],"count":3,"average":200,"total":6001}]}`},
		{"stats of nothing", statsOfNone, nil, ir.MapOptions{}, "@x: { .count = 0, .average = -, .total = 0 }\n",
			`{"type":"stats","data":{"@x":{"count":0,"average":null,"total":0}},"func":"stats","columns":[],"rows":[{"key":[],"count":0,"average":null,"total":0}]}`},
		{"topk", ranked, []ir.Element{{Key: []any{"a"}, State: []uint64{2000, 0}}, {Key: []any{"b"}, State: []uint64{3000, 500}}, {Key: []any{"c"}, State: []uint64{1, 1}}}, ir.MapOptions{},
			"@x[a]: 2us\n@x[b]: 2.5us..3us\n",
			`{"type":"map","data":{"@x":{"a":2000,"b":3000}},"func":"topk","unit":"ns","columns":[""],"rows":[{"key":["a"],"value":2000,"error":0},{"key":["b"],"value":3000,"error":500}]}`},
		{"topk, divided", ranked, []ir.Element{{Key: []any{"b"}, State: []uint64{3000, 1}}}, ir.MapOptions{Div: 1000},
			"@x[b]: 2..3\n",
			`{"type":"map","data":{"@x":{"b":3}},"func":"topk","columns":[""],"rows":[{"key":["b"],"value":3,"error":1}]}`},
		{"quantile", quantiles, []ir.Element{filled(quantiles, []any{"read"}, 81_200, 81_000, 1<<40), filled(quantiles, []any{"none"})}, ir.MapOptions{},
			"@x[none]: p50 -, p99.9 -\n@x[read]: p50 79.9us, p99.9 >=18m20s\n",
			`{"type":"map","data":{"@x":{"none":{"p50":null,"p99.9":null},"read":{"p50":79871,"p99.9":1099511627776}}},"func":"quantile","unit":"ns","columns":[""],"rows":[{"key":["none"],"count":0,"quantiles":[{"p":50,"value":null},{"p":99.9,"value":null}]},{"key":["read"],"count":3,"quantiles":[{"p":50,"value":79871},{"p":99.9,"lo":1099511627776,"hi":null}]}]}`},
		{"quantile of signed numbers", signedQuantile, []ir.Element{filled(signedQuantile, nil, negative(1), 20)}, ir.MapOptions{}, "@x: p50 <0, p90 20\n",
			`{"type":"map","data":{"@x":{"p50":0,"p90":20}},"func":"quantile","columns":[],"rows":[{"key":[],"count":2,"quantiles":[{"p":50,"lo":null,"hi":0},{"p":90,"value":20}]}]}`},
		{"rate", rates, []ir.Element{filled(rates, []any{"a"}, 1, 1), filled(rates, []any{"b"}, 2469)}, ir.MapOptions{Elapsed: 2 * time.Second}, "@x[a]: 1/s\n@x[b]: 1234.5/s\n",
			`{"type":"map","data":{"@x":{"a":1,"b":1234.5}},"func":"rate","columns":[""],"rows":[{"key":["a"],"total":2,"per_second":1},{"key":["b"],"total":2469,"per_second":1234.5}]}`},
		{"rate at once", rates, []ir.Element{filled(rates, []any{"a"}, 1)}, ir.MapOptions{}, "@x[a]: -\n",
			`{"type":"map","data":{"@x":{"a":null}},"func":"rate","columns":[""],"rows":[{"key":["a"],"total":1,"per_second":null}]}`},
		{"rate of bytes", bytesRate, []ir.Element{filled(bytesRate, nil, 5<<20, 1)}, ir.MapOptions{Elapsed: 2 * time.Second}, "@x: 2.5MiB/s\n",
			`{"type":"map","data":{"@x":2621440.5},"func":"rate","unit":"bytes","columns":[],"rows":[{"key":[],"total":5242881,"per_second":2621440.5}]}`},
		{"rate of bytes, divided", bytesRate, []ir.Element{filled(bytesRate, nil, 5000)}, ir.MapOptions{Elapsed: time.Second, Div: 1000}, "@x: 5/s\n",
			`{"type":"map","data":{"@x":5},"func":"rate","columns":[],"rows":[{"key":[],"total":5000,"per_second":5}]}`},
		{"rate of signed durations", durationRate, []ir.Element{filled(durationRate, nil, negative(3000))}, ir.MapOptions{Elapsed: time.Second}, "@x: -3000ns/s\n",
			`{"type":"map","data":{"@x":-3000},"func":"rate","unit":"ns","columns":[],"rows":[{"key":[],"total":-3000,"per_second":-3000}]}`},
		{"gauge", gauge, []ir.Element{filled(gauge, nil, 2, negative(3))}, ir.MapOptions{}, "@x: -1\n", `{"type":"map","data":{"@x":-1},"func":"gauge","columns":[],"rows":[{"key":[],"value":-1}]}`},

		{"hist", hist, []ir.Element{filled(hist, nil, negative(1), 2, 3, 7, 20)}, ir.MapOptions{}, `@x:
(..., 0)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |
[0]                    0 |                                                    |
[1]                    0 |                                                    |
[2, 4)                 2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[4, 8)                 1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |
[8, 16)                0 |                                                    |
[16, 32)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |

`, `{"type":"hist","data":{"@x":[{"max":-1,"count":1},{"min":0,"max":0,"count":0},{"min":1,"max":1,"count":0},{"min":2,"max":3,"count":2},{"min":4,"max":7,"count":1},{"min":8,"max":15,"count":0},{"min":16,"max":31,"count":1}]},"func":"hist","columns":[],"rows":[{"key":[],"buckets":[{"lo":null,"hi":0,"n":1},{"lo":0,"hi":1,"n":0},{"lo":1,"hi":2,"n":0},{"lo":2,"hi":4,"n":2},{"lo":4,"hi":8,"n":1},{"lo":8,"hi":16,"n":0},{"lo":16,"hi":32,"n":1}]}]}`},
		{"hist with bits", histK, []ir.Element{filled(histK, nil, 3, 4, 10)}, ir.MapOptions{}, `@x:
[3]                    1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[4, 6)                 1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[6, 8)                 0 |                                                    |
[8, 12)                1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|

`, `{"type":"hist","data":{"@x":[{"min":3,"max":3,"count":1},{"min":4,"max":5,"count":1},{"min":6,"max":7,"count":0},{"min":8,"max":11,"count":1}]},"func":"hist","columns":[],"rows":[{"key":[],"buckets":[{"lo":3,"hi":4,"n":1},{"lo":4,"hi":6,"n":1},{"lo":6,"hi":8,"n":0},{"lo":8,"hi":12,"n":1}]}]}`},
		{"hist with bits, in K", histK, []ir.Element{filled(histK, nil, 1535, 1536, 2048)}, ir.MapOptions{}, `@x:
[1024, 1536)           1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[1536, 2K)             1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[2K, 3K)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|

`, `{"type":"hist","data":{"@x":[{"min":1024,"max":1535,"count":1},{"min":1536,"max":2047,"count":1},{"min":2048,"max":3071,"count":1}]},"func":"hist","columns":[],"rows":[{"key":[],"buckets":[{"lo":1024,"hi":1536,"n":1},{"lo":1536,"hi":2048,"n":1},{"lo":2048,"hi":3072,"n":1}]}]}`},
		{"hist to the end", histK, []ir.Element{filled(histK, nil, math.MaxUint64)}, ir.MapOptions{}, `@x:
[12E, ...)             1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|

`, `{"type":"hist","data":{"@x":[{"min":13835058055282163712,"count":1}]},"func":"hist","columns":[],"rows":[{"key":[],"buckets":[{"lo":"13835058055282163712","hi":null,"n":1}]}]}`},
		{"hist of nothing", hist, nil, ir.MapOptions{}, "@x:\n\n", `{"type":"hist","data":{"@x":[]},"func":"hist","columns":[],"rows":[{"key":[],"buckets":[]}]}`},
		{"hist with keys", histNs, []ir.Element{filled(histNs, []any{uint64(2)}, 70_000, 80_000, 200_000), filled(histNs, []any{uint64(1)}, 1, 2)}, ir.MapOptions{}, `@x[write]:
[1ns]                  1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[2ns, 4ns)             1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|

@x[read]:
[65.5us, 131us)        2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[131us, 262us)         1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |

`, `{"type":"hist","data":{"@x":{"write":[{"min":1,"max":1,"count":1},{"min":2,"max":3,"count":1}],"read":[{"min":65536,"max":131071,"count":2},{"min":131072,"max":262143,"count":1}]}},"func":"hist","unit":"ns","columns":[""],"rows":[{"key":["write"],"buckets":[{"lo":1,"hi":2,"n":1},{"lo":2,"hi":4,"n":1}]},{"key":["read"],"buckets":[{"lo":65536,"hi":131072,"n":2},{"lo":131072,"hi":262144,"n":1}]}]}`},
		{"hist, divided", histNs, []ir.Element{filled(histNs, []any{uint64(2)}, 1, 1, 2, 3, 3)}, ir.MapOptions{Div: 2}, `@x[read]:
[1ns]                  1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[2ns, 4ns)             1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|

`, `{"type":"hist","data":{"@x":{"read":[{"min":1,"max":1,"count":1},{"min":2,"max":3,"count":1}]}},"func":"hist","unit":"ns","columns":[""],"rows":[{"key":["read"],"buckets":[{"lo":1,"hi":2,"n":1},{"lo":2,"hi":4,"n":1}]}]}`},
		{"estimates: count", sampled(counts), []ir.Element{filled(counts, []any{"a"}, 1, 1, 1)}, ir.MapOptions{Share: 0.1}, "@x[a]: ~30\n",
			`{"type":"map","data":{"@x":{"a":30}},"func":"count","estimate":true,"columns":[""],"rows":[{"key":["a"],"value":30}]}`},
		{"estimates: sum", sampled(sums), []ir.Element{filled(sums, []any{"a"}, 4096)}, ir.MapOptions{Share: 0.5}, "@x[a]: ~8KiB\n",
			`{"type":"map","data":{"@x":{"a":8192}},"func":"sum","unit":"bytes","estimate":true,"columns":[""],"rows":[{"key":["a"],"value":8192}]}`},
		{"estimates: avg is none", sampled(avgs), []ir.Element{filled(avgs, []any{"a"}, negative(3), negative(4))}, ir.MapOptions{Share: 0.1}, "@x[a]: -3\n",
			`{"type":"stats","data":{"@x":{"a":-3}},"func":"avg","columns":[""],"rows":[{"key":["a"],"value":-3}]}`},
		{"estimates: stats", sampled(stats), []ir.Element{filled(stats, []any{"a"}, 1000, 2000, 3001)}, ir.MapOptions{Share: 0.25}, "@x[a]: { .count = ~12, .average = 2us, .total = ~24us }\n",
			`{"type":"stats","data":{"@x":{"a":{"count":12,"average":2000,"total":24004}}},"func":"stats","unit":"ns","estimate":true,"columns":[""],"rows":[{"key":["a"],"count":12,"average":2000,"total":24004}]}`},
		{"estimates: quantile", sampled(quantiles), []ir.Element{filled(quantiles, []any{"read"}, 20, 21)}, ir.MapOptions{Share: 0.1}, "@x[read]: p50 20ns, p99.9 21ns\n",
			`{"type":"map","data":{"@x":{"read":{"p50":20,"p99.9":21}}},"func":"quantile","unit":"ns","estimate":true,"columns":[""],"rows":[{"key":["read"],"count":20,"quantiles":[{"p":50,"value":20},{"p":99.9,"value":21}]}]}`},
		{"estimates: rate", sampled(rates), []ir.Element{filled(rates, []any{"a"}, 1, 1)}, ir.MapOptions{Elapsed: 2 * time.Second, Share: 0.1}, "@x[a]: ~10/s\n",
			`{"type":"map","data":{"@x":{"a":10}},"func":"rate","estimate":true,"columns":[""],"rows":[{"key":["a"],"total":20,"per_second":10}]}`},
		{"estimates: sum of signed numbers", sampled(signedSum), []ir.Element{filled(signedSum, nil, negative(3))}, ir.MapOptions{Share: 0.1}, "@x: ~-30\n",
			`{"type":"map","data":{"@x":-30},"func":"sum","estimate":true,"columns":[],"rows":[{"key":[],"value":-30}]}`},
		{"estimates: topk", sampled(ranked), []ir.Element{{Key: []any{"a"}, State: []uint64{2000, 500}}}, ir.MapOptions{Share: 0.5}, "@x[a]: ~3us..4us\n",
			`{"type":"map","data":{"@x":{"a":4000}},"func":"topk","unit":"ns","estimate":true,"columns":[""],"rows":[{"key":["a"],"value":4000,"error":1000}]}`},
		{"estimates: hist", sampled(lhist), []ir.Element{filled(lhist, nil, 2, 3, 7)}, ir.MapOptions{Share: 0.1}, `@x:
[2, 4)               ~20 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[4, 6)                ~0 |                                                    |
[6, 8)               ~10 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |

`, `{"type":"hist","data":{"@x":[{"min":2,"max":3,"count":20},{"min":4,"max":5,"count":0},{"min":6,"max":7,"count":10}]},"func":"lhist","estimate":true,"columns":[],"rows":[{"key":[],"buckets":[{"lo":2,"hi":4,"n":20},{"lo":4,"hi":6,"n":0},{"lo":6,"hi":8,"n":10}]}]}`},
		{"estimates: nothing could be seen", sampled(count), nil, ir.MapOptions{Unseen: true}, "@x: -\n", `{"type":"map","data":{"@x":null},"func":"count","estimate":true,"columns":[],"rows":[{"key":[],"value":null}]}`},
		{"hist from a minimum", histMin, []ir.Element{filled(histMin, nil, 1)}, ir.MapOptions{}, `@x:
(..., 4KiB)            1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|

`, `{"type":"hist","data":{"@x":[{"max":4095,"count":1}]},"func":"hist","unit":"bytes","columns":[],"rows":[{"key":[],"buckets":[{"lo":null,"hi":4096,"n":1}]}]}`},
		{"hist from a minimum, above", histMin, []ir.Element{filled(histMin, nil, 4096, 4608, 5120)}, ir.MapOptions{}, `@x:
[4KiB, 4608B)          1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[4608B, 5KiB)          1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[5KiB, 6KiB)           1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|

`, `{"type":"hist","data":{"@x":[{"min":4096,"max":4607,"count":1},{"min":4608,"max":5119,"count":1},{"min":5120,"max":6143,"count":1}]},"func":"hist","unit":"bytes","columns":[],"rows":[{"key":[],"buckets":[{"lo":4096,"hi":4608,"n":1},{"lo":4608,"hi":5120,"n":1},{"lo":5120,"hi":6144,"n":1}]}]}`},

		{"lhist", lhist, []ir.Element{filled(lhist, nil, negative(1), 2, 3, 7, 20)}, ir.MapOptions{Div: 2}, `@x:
(..., 0)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |
[0, 2)                 0 |                                                    |
[2, 4)                 2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[4, 6)                 0 |                                                    |
[6, 8)                 1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |
[8, 10)                0 |                                                    |
[10, ...)              1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |

`, `{"type":"hist","data":{"@x":[{"max":-1,"count":1},{"min":0,"max":1,"count":0},{"min":2,"max":3,"count":2},{"min":4,"max":5,"count":0},{"min":6,"max":7,"count":1},{"min":8,"max":9,"count":0},{"min":10,"count":1}]},"func":"lhist","columns":[],"rows":[{"key":[],"buckets":[{"lo":null,"hi":0,"n":1},{"lo":0,"hi":2,"n":0},{"lo":2,"hi":4,"n":2},{"lo":4,"hi":6,"n":0},{"lo":6,"hi":8,"n":1},{"lo":8,"hi":10,"n":0},{"lo":10,"hi":null,"n":1}]}]}`},
		{"lhist in K", lhistK, []ir.Element{filled(lhistK, nil, 0, 1<<10, 2<<10)}, ir.MapOptions{}, `@x:
[0, 1K)                1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[1K, 2K)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[2K, 3K)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|

`, `{"type":"hist","data":{"@x":[{"min":0,"max":1023,"count":1},{"min":1024,"max":2047,"count":1},{"min":2048,"max":3071,"count":1}]},"func":"lhist","columns":[],"rows":[{"key":[],"buckets":[{"lo":0,"hi":1024,"n":1},{"lo":1024,"hi":2048,"n":1},{"lo":2048,"hi":3072,"n":1}]}]}`},
		{"lhist of durations that are near", lhistNs, []ir.Element{filled(lhistNs, nil, 999, 1_000_000, 1_001_000, 1_002_000, 1_002_500)}, ir.MapOptions{}, `@x:
(..., 1ms)                 1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[1ms, 1.001ms)             1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[1.001ms, 1.002ms)         1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[1.002ms, 1.0025ms)        1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[1.0025ms, ...)            1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|

`, `{"type":"hist","data":{"@x":[{"max":999999,"count":1},{"min":1000000,"max":1000999,"count":1},{"min":1001000,"max":1001999,"count":1},{"min":1002000,"max":1002499,"count":1},{"min":1002500,"count":1}]},"func":"lhist","unit":"ns","columns":[],"rows":[{"key":[],"buckets":[{"lo":null,"hi":1000000,"n":1},{"lo":1000000,"hi":1001000,"n":1},{"lo":1001000,"hi":1002000,"n":1},{"lo":1002000,"hi":1002500,"n":1},{"lo":1002500,"hi":null,"n":1}]}]}`},

		{"scalars", scalarMap(langtest.Ns, langtest.Str16, langtest.U32), []ir.Element{
			{Key: []any{"a", uint64(1)}, Value: []any{uint64(2000)}}, {Key: []any{"b", nil}, Value: []any{nil}}, {Key: []any{"", uint64(3)}, Value: []any{uint64(1)}}}, ir.MapOptions{},
			"@x[b, -]: -\n@x[, 3]: 1ns\n@x[a, 1]: 2us\n",
			`{"type":"map","data":{"@x":{"b,":null,",3":1,"a,1":2000}},"unit":"ns","columns":["",""],"rows":[{"key":["b",null],"value":null},{"key":["",3],"value":1},{"key":["a",1],"value":2000}]}`},
		{"scalars, divided", scalarMap(langtest.Ns, langtest.Str16), []ir.Element{{Key: []any{"a"}, Value: []any{uint64(2999)}}}, ir.MapOptions{Div: 1000}, "@x[a]: 2\n",
			`{"type":"map","data":{"@x":{"a":2}},"columns":[""],"rows":[{"key":["a"],"value":2}]}`},
		{"no scalar", scalarMap(langtest.U64), nil, ir.MapOptions{}, "@x: 0\n", `{"type":"map","data":{"@x":0},"columns":[],"rows":[{"key":[],"value":0}]}`},
		{"strings", scalarMap(langtest.Str16, langtest.U32), []ir.Element{{Key: []any{uint64(2)}, Value: []any{"a b"}}, {Key: []any{uint64(1)}, Value: []any{"z\n"}}}, ir.MapOptions{},
			"@x[1]: z\\n\n@x[2]: a b\n", `{"type":"map","data":{"@x":{"1":"z\u000a","2":"a b"}},"columns":[""],"rows":[{"key":[1],"value":"z\u000a"},{"key":[2],"value":"a b"}]}`},
		{"booleans", scalarMap(langtest.Flag, langtest.Flag), []ir.Element{{Key: []any{true}, Value: []any{false}}, {Key: []any{false}, Value: []any{true}}}, ir.MapOptions{},
			"@x[false]: true\n@x[true]: false\n", `{"type":"map","data":{"@x":{"false":true,"true":false}},"columns":[""],"rows":[{"key":[false],"value":true},{"key":[true],"value":false}]}`},
		{"booleans by value", scalarMap(langtest.Flag, langtest.Flag), []ir.Element{{Key: []any{false}, Value: []any{true}}, {Key: []any{true}, Value: []any{false}}}, ir.MapOptions{By: "value"},
			"@x[true]: false\n@x[false]: true\n", `{"type":"map","data":{"@x":{"true":false,"false":true}},"columns":[""],"rows":[{"key":[true],"value":false},{"key":[false],"value":true}]}`},
		{"tuples", pairs, []ir.Element{{Key: []any{uint64(2), langtest.Addresses["fe80::1"]}, Value: []any{uint64(1), "x"}}, {Key: []any{uint64(99), nil}, Value: []any{nil, "y z"}}}, ir.MapOptions{},
			"@x[read, fe80::1]: (write, x)\n@x[unknown(0x63), -]: (-, y z)\n",
			`{"type":"map","data":{"@x":{"read,fe80::1":["write","x"],"99,":[null,"y z"]}},"columns":["",""],"rows":[{"key":["read","fe80::1"],"value":["write","x"]},{"key":[99,null],"value":[null,"y z"]}]}`},
	} {
		text, object := printed(t, output.Text, test.m, test.elements, test.o), printed(t, output.JSON, test.m, test.elements, test.o)
		if text != test.text {
			t.Errorf("%s:\n got %s\nwant %s", test.name, text, test.text)
		}
		if object != test.json+"\n" {
			t.Errorf("%s:\n got %s\nwant %s", test.name, object, test.json)
		}
		checkSchema(t, object)
	}
}

// TestOrder checks which rows are printed of a map, and in which order.
func TestOrder(t *testing.T) {
	counts := aggregation(agg.Agg{Func: agg.Count{}}, langtest.U64, langtest.Str16)
	sums := aggregation(agg.Agg{Func: agg.Sum{}}, langtest.S64, langtest.S64)
	hists := aggregation(agg.Agg{Func: agg.NewHist(0, 0, 0)}, langtest.U64, langtest.Str16)
	abcd := func() []ir.Element {
		return []ir.Element{filled(counts, []any{"d"}, 1), filled(counts, []any{"a"}, 1, 1, 1), filled(counts, []any{"c"}, 1, 1), filled(counts, []any{"b"}, 1)}
	}
	for _, test := range []struct {
		m        *ir.Map
		elements []ir.Element
		o        ir.MapOptions
		want     string
	}{
		{counts, abcd(), ir.MapOptions{}, "b d c a"}, // equal values are sorted by key
		{counts, abcd(), ir.MapOptions{By: "value"}, "b d c a"},
		{counts, abcd(), ir.MapOptions{By: "key"}, "a b c d"},
		{counts, abcd(), ir.MapOptions{Top: 2}, "c a"},
		{counts, abcd(), ir.MapOptions{Top: 2, By: "key"}, "a c"}, // the largest, by key
		{counts, abcd(), ir.MapOptions{Top: 9}, "b d c a"},
		{hists, []ir.Element{filled(hists, []any{"a"}, 1, 1), filled(hists, []any{"b"}, 100)}, ir.MapOptions{}, "b a"}, // by the number of values
		{sums, []ir.Element{filled(sums, []any{int64(-1)}, 1), filled(sums, []any{int64(5)}, negative(7)), filled(sums, []any{int64(-2)}, 1)}, ir.MapOptions{}, "5 -2 -1"},
		{scalarMap(langtest.Str16, langtest.U64), []ir.Element{{Key: []any{uint64(7)}, Value: []any{"a"}}, {Key: []any{uint64(1) << 63}, Value: []any{"b"}}, {Key: []any{uint64(1)}, Value: []any{"c"}}}, ir.MapOptions{Top: 2},
			"7 9223372036854775808"},
		{scalarMap(langtest.Str16, langtest.U64), []ir.Element{{Key: []any{uint64(1)}, Value: []any{"b"}}, {Key: []any{uint64(2)}, Value: []any{"a"}}}, ir.MapOptions{By: "value"}, "2 1"},
	} {
		var keys []string
		for line := range strings.Lines(printed(t, output.Text, test.m, test.elements, test.o)) {
			if key := regexp.MustCompile(`^@x\[(.*)\]:`).FindStringSubmatch(line); key != nil {
				keys = append(keys, key[1])
			}
		}
		if got := strings.Join(keys, " "); got != test.want {
			t.Errorf("%+v: got %s, want %s", test.o, got, test.want)
		}
	}
}

// TestBuckets checks that the lines of a histogram show the bounds of its buckets: exactly, except durations, which are rounded by
// less than a quarter of a bucket.
func TestBuckets(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	line := regexp.MustCompile(`^([\[(])([^,]+)(?:, ([^,]+))?([\])]) *(\d+) \|(@* *)\|$`)
	for range 2000 {
		m := randomHistogram(random)
		ranges := m.Agg.Shape().(agg.Buckets)
		state := make([]uint64, m.Agg.Words())
		first := random.IntN(len(state))
		for i := range min(len(state)-first, 8) {
			if _, _, below, above := ranges.Bounds(first+i, m.Agg.Signed); above && !below && first+i < len(state)-1 {
				break // the buckets of a signed number from 2^63 up
			}
			state[first+i] = 1 + random.Uint64N(1<<random.IntN(40))
		}
		bucket := first
		var last string
		h := m.Result(ir.Element{State: state}, ir.MapOptions{}).(result.Histogram)
		_, lines, _ := strings.Cut(printed(t, output.Text, m, []ir.Element{{State: state}}, ir.MapOptions{}), "\n")
		for text := range strings.Lines(strings.TrimSuffix(lines, "\n")) {
			match := line.FindStringSubmatch(strings.TrimSuffix(text, "\n"))
			if match == nil || len(match[6]) != 52 {
				t.Fatalf("%+v: %q", m.Agg, text)
			}
			lo, hi := match[2], match[3]
			low, high, below, above := ranges.Bounds(bucket, m.Agg.Signed)
			if below != (lo == "...") || above != (hi == "...") || (hi == "") != (!below && !above && high == low+1) {
				t.Fatalf("%+v: bucket %d is %q", m.Agg, bucket, text)
			}
			if !below {
				checkBound(t, m, lo, low, h.Width(bucket))
			}
			if hi != "" && !above {
				checkBound(t, m, hi, high, h.Width(bucket+1))
			}
			if last != "" && hi != "" && lo != last || lo == hi {
				t.Fatalf("%+v: after %s comes %q", m.Agg, last, text)
			}
			if n, _ := strconv.ParseUint(match[5], 10, 64); n != state[bucket] {
				t.Fatalf("%+v: bucket %d has %d: %q", m.Agg, bucket, state[bucket], text)
			}
			last = hi
			bucket++
		}
		if bucket != first && bucket < len(state) && state[bucket] != 0 {
			t.Fatalf("%+v: no line for bucket %d", m.Agg, bucket)
		}
	}
}

func randomHistogram(random *rand.Rand) *ir.Map {
	units := []event.Unit{event.None, event.Nanoseconds, event.Bytes}
	typ := event.Type{Kind: event.Uint, Size: 8, Unit: units[random.IntN(len(units))]}
	if random.IntN(2) == 0 {
		typ.Kind = event.Int
	}
	low := int64(0)
	if random.IntN(2) == 0 {
		low = random.Int64N(1 << (1 + random.IntN(40)))
		if typ.Kind == event.Int && random.IntN(2) == 0 {
			low = -low
		}
	}
	if random.IntN(2) == 0 {
		step := 1 + random.Int64N(1<<(1+random.IntN(30)))
		if random.IntN(2) == 0 {
			step &^= 1023
		}
		step = max(step, 1)
		return aggregation(agg.Agg{Func: agg.NewLHist(low, low+step*(1+random.Int64N(100))+random.Int64N(step), step)}, typ)
	}
	return aggregation(agg.Agg{Func: agg.NewHist(random.IntN(6), random.IntN(2)*random.IntN(12), low)}, typ)
}

// checkBound reads a bound as written.
func checkBound(t *testing.T, m *ir.Map, written string, want, width uint64) {
	t.Helper()
	exact := float64(want)
	if m.Agg.Signed {
		exact = float64(int64(want))
	}
	allowed := math.Abs(exact) * 1e-15
	if m.Value[0].Type.Unit == event.Nanoseconds {
		allowed = max(allowed, float64(width)/4*1.001)
	}
	if off := math.Abs(readBound(t, written) - exact); off > allowed {
		t.Fatalf("%+v: %s is %v", m.Agg, written, exact)
	}
}

// readBound reads numbers with their units, like 1d5s.
func readBound(t *testing.T, written string) float64 {
	t.Helper()
	units := map[string]float64{
		"": 1, "ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "h": 3600e9, "d": 86400e9,
		"B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50, "E": 1 << 60,
	}
	sum, rest := 0.0, strings.TrimPrefix(written, "-")
	for rest != "" {
		unit := strings.TrimLeft(rest, "0123456789.")
		x, err := strconv.ParseFloat(strings.TrimSuffix(rest, unit), 64)
		if err != nil {
			t.Fatalf("%s is no bound", written)
		}
		rest = strings.TrimLeft(unit, "KMGTPEiBnumshd")
		unit = strings.TrimSuffix(unit, rest)
		scale, ok := units[strings.TrimSuffix(unit, "iB")]
		if !ok {
			t.Fatalf("%s is no bound", written)
		}
		sum += x * scale
	}
	if strings.HasPrefix(written, "-") {
		return -sum
	}
	return sum
}

func TestPrintValues(t *testing.T) {
	for _, test := range []struct {
		print      func(p *output.Printer) error
		text, json string
		csv        string
	}{
		{func(p *output.Printer) error { return p.Text(result.At(0), []byte("a \"b\"\n")) }, "a \"b\"\n", `{"type":"printf","data":"a \"b\"\u000a"}`, "a \"b\"\n"},
		{func(p *output.Printer) error {
			layout, err := format.NewTimePattern("%T.")
			if err != nil {
				return err
			}
			return p.Time(result.At(0), format.AppendTime(nil, layout, time.Unix(0, 0).UTC()))
		}, "00:00:00.", `{"type":"time","data":"00:00:00."}`, "00:00:00."},
		{func(p *output.Printer) error { return p.Attached(0, 2) }, "", `{"type":"attached_probes","count":2,"data":{"probes":2}}`, ""},
		{func(p *output.Printer) error { return p.Lost(0, 800) }, "", `{"type":"lost_events","count":800,"data":{"events":800}}`, ""},
		{func(p *output.Printer) error { return p.Value(result.At(0), langtest.Ns, nil, uint64(1500), false) }, "1.5us\n", `{"type":"value","data":1500,"unit":"ns"}`, "1500\n"},
		{func(p *output.Printer) error { return p.Value(result.At(0), langtest.Opcode, nil, uint64(2), false) }, "read\n", `{"type":"value","data":"read"}`, "read\n"},
		{func(p *output.Printer) error { return p.Value(result.At(0), langtest.Str16, nil, "a b", false) }, "a b\n", `{"type":"value","data":"a b"}`, "a b\n"},
		{func(p *output.Printer) error { return p.Value(result.At(0), langtest.Str16, nil, "=a, \"b\"", false) }, "=a, \"b\"\n", `{"type":"value","data":"=a, \"b\""}`, "\"'=a, \"\"b\"\"\"\n"},
		{func(p *output.Printer) error { return p.Value(result.At(0), langtest.Str16, nil, "=a,\nb", true) }, "=a,\nb\n", `{"type":"value","data":"=a,\u000ab"}`, "\"=a,\nb\"\n"},
		{func(p *output.Printer) error { return p.Value(result.At(0), langtest.Str16, nil, nil, false) }, "-\n", `{"type":"value","data":null}`, "\"\"\n"},
		{func(p *output.Printer) error {
			return p.Value(result.At(0), event.Type{Kind: format.Tuple}, []event.Type{langtest.Opcode, langtest.Str16}, []any{uint64(1), nil}, false)
		}, "(write, -)\n", `{"type":"value","data":["write",null]}`, "write,\n"},
		{func(p *output.Printer) error {
			return p.Value(result.At(0), event.Type{Kind: format.Array}, []event.Type{langtest.Opcode}, []any{uint64(1), nil, uint64(2)}, false)
		}, "[write,-,read]\n", `{"type":"value","data":["write",null,"read"]}`, "write,,read\n"},
		{func(p *output.Printer) error {
			m := aggregation(agg.Agg{Func: agg.Sum{}}, langtest.Size, langtest.Str16)
			return p.Element(result.At(0), m.Table([]ir.Element{filled(m, []any{"a"}, 4096)}, ir.MapOptions{Elapsed: 0}))
		}, "4KiB\n", `{"type":"value","data":4096,"unit":"bytes","row":{"key":["a"],"value":4096}}`, "4096\n"},
		{func(p *output.Printer) error {
			m := aggregation(agg.Agg{Func: agg.Rate{}}, langtest.U64)
			return p.Element(result.At(0), m.Table([]ir.Element{filled(m, nil, 3)}, ir.MapOptions{Elapsed: 20 * time.Second}))
		}, "0.15/s\n", `{"type":"value","data":0.15,"row":{"key":[],"total":3,"per_second":0.15}}`, "3,0.15\n"},
		{func(p *output.Printer) error {
			m := aggregation(agg.Agg{Func: agg.NewQuantile(50, 99)}, langtest.Ns, langtest.Str16)
			return p.Element(result.At(0), m.Table([]ir.Element{filled(m, []any{"a"}, 3, 1<<63)}, ir.MapOptions{}))
		}, "p50 3ns, p99 >=18m20s\n", `{"type":"value","data":{"p50":3,"p99":1099511627776},"unit":"ns",` +
			`"row":{"key":["a"],"count":2,"quantiles":[{"p":50,"value":3},{"p":99,"lo":1099511627776,"hi":null}]}}`, "2,3,>=1099511627776\n"},
		{func(p *output.Printer) error {
			m := aggregation(agg.Agg{Func: agg.NewHist(0, 0, 0)}, langtest.U64)
			return p.Element(result.At(0), m.Table([]ir.Element{filled(m, nil, 3)}, ir.MapOptions{Elapsed: 0}))
		}, "[2, 4)                 1 |" + strings.Repeat("@", 52) + "|\n\n", `{"type":"value","data":[{"min":2,"max":3,"count":1}],"row":{"key":[],"buckets":[{"lo":2,"hi":4,"n":1}]}}`, "2,4,1\n"},
		{func(p *output.Printer) error {
			m := aggregation(agg.Agg{Func: agg.Series{Interval: 1e9, N: 2}}, langtest.U64, langtest.Str16)
			return p.Element(result.At(0), m.Table([]ir.Element{filled(m, []any{"a"}, 3)}, ir.MapOptions{}))
		}, "                   2                                                   4\n" +
			"hh:mm:ss.ns        |___________________________________________________|\n" +
			"00:00:00.000000000 |                         *                         | 3\n" +
			"                   v___________________________________________________v\n" +
			"                   2                                                   4\n\n",
			`{"type":"value","data":[{"interval_start":"1970-01-01 00:00:00.000000000","value":3}],` +
				`"row":{"key":["a"],"intervals":[{"start":"1970-01-01 00:00:00.000000000","value":3}]}}`, "1970-01-01T00:00:00Z,3\n"},
		{func(p *output.Printer) error {
			within := &format.Form{Names: []string{"a", "b"}, Parts: []*format.Form{nil, {Parts: make([]*format.Form, 1)}}}
			m := &ir.Map{
				Name: "@r", Key: []ir.Column{{Type: langtest.U64}, {Type: langtest.Str16}}, KeyForm: within, IsTuple: true,
				Value: []ir.Column{{Type: langtest.U64}, {Type: langtest.Str16}, {Type: langtest.U64}}, ValueForm: &format.Form{Parts: []*format.Form{nil, within}},
			}
			return p.Element(result.At(0), m.Table([]ir.Element{{Key: []any{uint64(1), "x"}, Value: []any{uint64(1), "y", nil}}}, ir.MapOptions{}))
		}, "(1, { .a = y, .b = (-) })\n", `{"type":"value","data":[1,{"a":"y","b":[null]}],"row":{"key":[1,"x"],"value":[1,{"a":"y","b":[null]}]}}`, "1,y,\n"},
	} {
		for f, want := range map[output.Format]string{output.Text: test.text, output.JSON: test.json + "\n", output.CSV: test.csv} {
			var b bytes.Buffer
			p := output.NewPrinter(&b, f, event.NewWallClock(time.Time{}))
			for range 2 { // the second time, nothing is left over from the first
				b.Reset()
				if err := test.print(p); err != nil {
					t.Fatal(err)
				}
			}
			if got := b.String(); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if f == output.JSON {
				checkSchema(t, b.String())
			}
		}
	}
}

func BenchmarkMap(b *testing.B) {
	m := aggregation(agg.Agg{Func: agg.Count{}}, langtest.U64, langtest.U64, langtest.Str16)
	var elements []ir.Element
	for i := range uint64(10_000) {
		elements = append(elements, ir.Element{Key: []any{i, "comm"}, State: []uint64{i * 7919 % 10_007}})
	}
	for _, f := range []output.Format{output.Text, output.JSON} {
		b.Run(string(f), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := output.NewPrinter(io.Discard, f, event.NewWallClock(time.Time{})).Map(result.At(0), m.Table(elements, ir.MapOptions{})); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Estimates are marked in CSV by a column, and in the value of one element.
func TestEstimates(t *testing.T) {
	m := aggregation(agg.Agg{Func: agg.Count{}}, langtest.U64, langtest.Str16)
	m.Sampled = true
	elements, o := []ir.Element{filled(m, []any{"a"}, 1, 1)}, ir.MapOptions{Share: 0.1}
	if got, want := printed(t, output.CSV, m, elements, o), "map,,count,estimate\n@x,a,20,true\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for f, want := range map[output.Format]string{output.Text: "~20\n", output.JSON: `{"type":"value","data":20,"estimate":true,"row":{"key":["a"],"value":20}}` + "\n"} {
		var b bytes.Buffer
		if err := output.NewPrinter(&b, f, event.NewWallClock(time.Time{})).Element(result.At(0), m.Table(elements, o)); err != nil || b.String() != want {
			t.Errorf("got %q, want %q: %v", b.String(), want, err)
		}
		if f == output.JSON {
			checkSchema(t, b.String())
		}
	}
	if _, err := result.Merge(m.Table(elements, o)); err == nil || err.Error() != "merge @x: its values are estimates" {
		t.Errorf("merging: %v", err)
	}
}

// Of a program that is seen in part, the maps are marked that this affects. What would mean nothing is refused.
func TestSample(t *testing.T) {
	sampled := func(p *event.Probe) bool { return p.Group == "nvme" }
	compiled := func(text string) *ir.Program {
		t.Helper()
		p, err := compile("program", text, langtest.Catalog, check.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := compiled(`nvme:setup_rq { @a = count(); @b = max(pid); @s = pid } begin { @c = count() } end { print(@a) }`)
	if err := p.Sample(sampled); err != nil {
		t.Fatal(err)
	}
	for _, m := range p.Maps {
		if want := m.Name == "@a" || m.Name == "@b"; m.Sampled != want {
			t.Errorf("%s is sampled: %t", m.Name, m.Sampled)
		}
	}
	for text, want := range map[string]string{
		`nvme:setup_rq { @x++ }`:                                      "a value that is changed by ++, --, += or -= needs each event, and --burst sees a part of them",
		`nvme:setup_rq { if (pid > 1) { @x += pid } }`:                "a value that is changed by",
		`nvme:setup_rq { @x = gauge(1) }`:                             "gauge() needs each event, and --burst sees a part of them",
		`nvme:setup_rq { @x = tseries(pid, 1s, 5, "sum") }`:           "a series of sums needs each event, and --burst sees a part of them",
		`nvme:setup_rq { @x = count() } interval:1s { @x = count() }`: "@x counts events that are all seen, and others that --burst sees a part of",
	} {
		if err := compiled(text).Sample(sampled); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "use count() or sum()") && !strings.Contains(err.Error(), "use two maps") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
