package lang

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
	"trace/lang/format"
	"trace/lang/output"
	"trace/lang/result"
	"trace/probes/event"
)

// aggregation makes a map of an aggregation of values of type t.
func aggregation(a agg.Agg, t event.Type, key ...event.Type) *mapInfo {
	a.Signed = t.Kind == event.Int
	return &mapInfo{name: "@x", agg: &a, key: columns(key...), value: columns(t)}
}

func scalarMap(t event.Type, key ...event.Type) *mapInfo {
	return &mapInfo{name: "@x", key: columns(key...), value: columns(t)}
}

// filled makes an entry of values that were aggregated; those that are negative are given as uint64 of them.
func filled(m *mapInfo, key []any, values ...uint64) entry {
	e := entry{key: key, state: make([]uint64, m.agg.Words())}
	for _, v := range values {
		m.agg.Add(e.state, v)
	}
	return e
}

func negative(n int64) uint64 { return uint64(-n) }

func printed(t testing.TB, f output.Format, m *mapInfo, entries []entry, o mapOptions) string {
	t.Helper()
	var b bytes.Buffer
	if err := output.NewPrinter(&b, f, time.Time{}).Map(m.table(entries, o)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestMap has a map of every shape. The histograms are those of bpftrace's own tests (tests/runtime/outputs, tests/output.cpp).
func TestMap(t *testing.T) {
	keyed := func(f agg.Func, typ event.Type) *mapInfo {
		return aggregation(agg.Agg{Func: f}, typ, str16)
	}
	counts, sums, avgs, minima := keyed(agg.Count{}, u64), keyed(agg.Sum{}, size), keyed(agg.Avg{}, s64), keyed(agg.NewMin(), opcode)
	stats, rates := keyed(agg.Stats{}, ns), keyed(agg.Rate{}, u64)
	quantiles := keyed(agg.NewQuantile(50, 99.9), ns)
	signedQuantile := aggregation(agg.Agg{Func: agg.NewQuantile(50, 90)}, s64)
	bytesRate := aggregation(agg.Agg{Func: agg.Rate{}}, size)
	durationRate := aggregation(agg.Agg{Func: agg.Rate{}}, event.Type{Kind: event.Int, Size: 8, Unit: event.Nanoseconds})
	gauge := aggregation(agg.Agg{Func: agg.Gauge{}}, s64)
	count, avg, statsOfNone := aggregation(agg.Agg{Func: agg.Count{}}, u64), aggregation(agg.Agg{Func: agg.Avg{}}, ns), aggregation(agg.Agg{Func: agg.Stats{}}, u64)
	hist, histK := aggregation(agg.Agg{Func: agg.NewHist(0, 0, 0)}, s64), aggregation(agg.Agg{Func: agg.NewHist(1, 0, 0)}, u64)
	histNs := aggregation(agg.Agg{Func: agg.NewHist(0, 0, 0)}, ns, opcode)
	histMin := aggregation(agg.Agg{Func: agg.NewHist(0, 9, 4096)}, size)
	lhist := aggregation(agg.Agg{Func: agg.NewLHist(0, 10, 2)}, s64)
	lhistK := aggregation(agg.Agg{Func: agg.NewLHist(0, 5<<10, 1<<10)}, u64)
	lhistNs := aggregation(agg.Agg{Func: agg.NewLHist(1_000_000, 1_002_500, 1000)}, ns)
	pairs := &mapInfo{name: "@x", key: columns(opcode, gid), value: columns(opcode, str16), isTuple: true}
	for _, test := range []struct {
		name       string
		m          *mapInfo
		entries    []entry
		o          mapOptions
		text, json string
	}{
		{"count", counts, []entry{filled(counts, []any{"b"}, 1, 1, 1), filled(counts, []any{"a b"}, 1), filled(counts, []any{nil}, 1)}, mapOptions{},
			"@x[-]: 1\n@x[a b]: 1\n@x[b]: 3\n",
			`{"type":"map","data":{"@x":{"":1,"a b":1,"b":3}},"func":"count","columns":[""],"rows":[{"key":[null],"value":1},{"key":["a b"],"value":1},{"key":["b"],"value":3}]}`},
		{"no key", count, []entry{filled(count, nil, 1, 1)}, mapOptions{}, "@x: 2\n",
			`{"type":"map","data":{"@x":2},"func":"count","columns":[],"rows":[{"key":[],"value":2}]}`},
		{"no key, no entry", count, nil, mapOptions{}, "@x: 0\n", `{"type":"map","data":{"@x":0},"func":"count","columns":[],"rows":[{"key":[],"value":0}]}`},
		{"no entry", counts, nil, mapOptions{}, "", `{"type":"map","data":{"@x":{}},"func":"count","columns":[""],"rows":[]}`},
		{"sum", sums, []entry{filled(sums, []any{"a"}, 4096, 4096)}, mapOptions{}, "@x[a]: 8KiB\n",
			`{"type":"map","data":{"@x":{"a":8192}},"func":"sum","unit":"bytes","columns":[""],"rows":[{"key":["a"],"value":8192}]}`},
		{"sum, divided", sums, []entry{filled(sums, []any{"a"}, 4096, 4096)}, mapOptions{div: 1000}, "@x[a]: 8\n",
			`{"type":"map","data":{"@x":{"a":8}},"func":"sum","columns":[""],"rows":[{"key":["a"],"value":8}]}`},
		{"avg", avgs, []entry{filled(avgs, []any{"a"}, negative(3), negative(4)), filled(avgs, []any{"b"}, negative(9))}, mapOptions{}, "@x[b]: -9\n@x[a]: -3\n",
			`{"type":"stats","data":{"@x":{"b":-9,"a":-3}},"func":"avg","columns":[""],"rows":[{"key":["b"],"value":-9},{"key":["a"],"value":-3}]}`},
		{"avg of nothing", avg, nil, mapOptions{}, "@x: -\n", `{"type":"stats","data":{"@x":null},"func":"avg","unit":"ns","columns":[],"rows":[{"key":[],"value":null}]}`},
		{"min", minima, []entry{filled(minima, []any{"a"}, 3, 2), filled(minima, []any{"b"}), filled(minima, []any{"c"}, 1)}, mapOptions{},
			"@x[b]: -\n@x[c]: write\n@x[a]: read\n",
			`{"type":"map","data":{"@x":{"b":null,"c":"write","a":"read"}},"func":"min","columns":[""],"rows":[{"key":["b"],"value":null},{"key":["c"],"value":"write"},{"key":["a"],"value":"read"}]}`},
		{"stats", stats, []entry{filled(stats, []any{"a"}, 1000, 2000, 3001)}, mapOptions{}, "@x[a]: count 3, average 2us, total 6us\n",
			`{"type":"stats","data":{"@x":{"a":{"count":3,"average":2000,"total":6001}}},"func":"stats","unit":"ns","columns":[""],"rows":[{"key":["a"],"count":3,"average":2000,"total":6001}]}`},
		{"stats, divided", stats, []entry{filled(stats, []any{"a"}, 1000, 2000, 3001)}, mapOptions{div: 10}, "@x[a]: count 3, average 200, total 6us\n",
			`{"type":"stats","data":{"@x":{"a":{"count":3,"average":200,"total":6001}}},"func":"stats","columns":[""],"rows":[{"key":["a"],"count":3,"average":200,"total":6001}]}`},
		{"stats of nothing", statsOfNone, nil, mapOptions{}, "@x: count 0, average -, total 0\n",
			`{"type":"stats","data":{"@x":{"count":0,"average":null,"total":0}},"func":"stats","columns":[],"rows":[{"key":[],"count":0,"average":null,"total":0}]}`},
		{"quantile", quantiles, []entry{filled(quantiles, []any{"read"}, 81_200, 81_000, 1<<40), filled(quantiles, []any{"none"})}, mapOptions{},
			"@x[none]: p50 -, p99.9 -\n@x[read]: p50 79.9us, p99.9 >=18m20s\n",
			`{"type":"map","data":{"@x":{"none":{"p50":null,"p99.9":null},"read":{"p50":79871,"p99.9":1099511627776}}},"func":"quantile","unit":"ns","columns":[""],"rows":[{"key":["none"],"count":0,"quantiles":[{"p":50,"value":null},{"p":99.9,"value":null}]},{"key":["read"],"count":3,"quantiles":[{"p":50,"value":79871},{"p":99.9,"lo":1099511627776,"hi":null}]}]}`},
		{"quantile of signed numbers", signedQuantile, []entry{filled(signedQuantile, nil, negative(1), 20)}, mapOptions{}, "@x: p50 <0, p90 20\n",
			`{"type":"map","data":{"@x":{"p50":0,"p90":20}},"func":"quantile","columns":[],"rows":[{"key":[],"count":2,"quantiles":[{"p":50,"lo":null,"hi":0},{"p":90,"value":20}]}]}`},
		{"rate", rates, []entry{filled(rates, []any{"a"}, 1, 1), filled(rates, []any{"b"}, 2469)}, mapOptions{elapsed: 2 * time.Second}, "@x[a]: 1/s\n@x[b]: 1234.5/s\n",
			`{"type":"map","data":{"@x":{"a":1,"b":1234.5}},"func":"rate","columns":[""],"rows":[{"key":["a"],"total":2,"per_second":1},{"key":["b"],"total":2469,"per_second":1234.5}]}`},
		{"rate at once", rates, []entry{filled(rates, []any{"a"}, 1)}, mapOptions{}, "@x[a]: -\n",
			`{"type":"map","data":{"@x":{"a":null}},"func":"rate","columns":[""],"rows":[{"key":["a"],"total":1,"per_second":null}]}`},
		{"rate of bytes", bytesRate, []entry{filled(bytesRate, nil, 5<<20, 1)}, mapOptions{elapsed: 2 * time.Second}, "@x: 2.5MiB/s\n",
			`{"type":"map","data":{"@x":2621440.5},"func":"rate","unit":"bytes","columns":[],"rows":[{"key":[],"total":5242881,"per_second":2621440.5}]}`},
		{"rate of bytes, divided", bytesRate, []entry{filled(bytesRate, nil, 5000)}, mapOptions{elapsed: time.Second, div: 1000}, "@x: 5/s\n",
			`{"type":"map","data":{"@x":5},"func":"rate","columns":[],"rows":[{"key":[],"total":5000,"per_second":5}]}`},
		{"rate of signed durations", durationRate, []entry{filled(durationRate, nil, negative(3000))}, mapOptions{elapsed: time.Second}, "@x: -3000ns/s\n",
			`{"type":"map","data":{"@x":-3000},"func":"rate","unit":"ns","columns":[],"rows":[{"key":[],"total":-3000,"per_second":-3000}]}`},
		{"gauge", gauge, []entry{filled(gauge, nil, 2, negative(3))}, mapOptions{}, "@x: -1\n", `{"type":"map","data":{"@x":-1},"func":"gauge","columns":[],"rows":[{"key":[],"value":-1}]}`},

		{"hist", hist, []entry{filled(hist, nil, negative(1), 2, 3, 7, 20)}, mapOptions{}, `@x:
(..., 0)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |
[0]                    0 |                                                    |
[1]                    0 |                                                    |
[2, 4)                 2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[4, 8)                 1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |
[8, 16)                0 |                                                    |
[16, 32)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |

`, `{"type":"hist","data":{"@x":[{"max":-1,"count":1},{"min":0,"max":0,"count":0},{"min":1,"max":1,"count":0},{"min":2,"max":3,"count":2},{"min":4,"max":7,"count":1},{"min":8,"max":15,"count":0},{"min":16,"max":31,"count":1}]},"func":"hist","columns":[],"rows":[{"key":[],"buckets":[{"lo":null,"hi":0,"n":1},{"lo":0,"hi":1,"n":0},{"lo":1,"hi":2,"n":0},{"lo":2,"hi":4,"n":2},{"lo":4,"hi":8,"n":1},{"lo":8,"hi":16,"n":0},{"lo":16,"hi":32,"n":1}]}]}`},
		{"hist with bits", histK, []entry{filled(histK, nil, 3, 4, 10)}, mapOptions{}, `@x:
[3]                    1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[4, 6)                 1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[6, 8)                 0 |                                                    |
[8, 12)                1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|

`, `{"type":"hist","data":{"@x":[{"min":3,"max":3,"count":1},{"min":4,"max":5,"count":1},{"min":6,"max":7,"count":0},{"min":8,"max":11,"count":1}]},"func":"hist","columns":[],"rows":[{"key":[],"buckets":[{"lo":3,"hi":4,"n":1},{"lo":4,"hi":6,"n":1},{"lo":6,"hi":8,"n":0},{"lo":8,"hi":12,"n":1}]}]}`},
		{"hist with bits, in K", histK, []entry{filled(histK, nil, 1535, 1536, 2048)}, mapOptions{}, `@x:
[1024, 1536)           1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[1536, 2K)             1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[2K, 3K)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|

`, `{"type":"hist","data":{"@x":[{"min":1024,"max":1535,"count":1},{"min":1536,"max":2047,"count":1},{"min":2048,"max":3071,"count":1}]},"func":"hist","columns":[],"rows":[{"key":[],"buckets":[{"lo":1024,"hi":1536,"n":1},{"lo":1536,"hi":2048,"n":1},{"lo":2048,"hi":3072,"n":1}]}]}`},
		{"hist to the end", histK, []entry{filled(histK, nil, math.MaxUint64)}, mapOptions{}, `@x:
[12E, ...)             1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|

`, `{"type":"hist","data":{"@x":[{"min":13835058055282163712,"count":1}]},"func":"hist","columns":[],"rows":[{"key":[],"buckets":[{"lo":"13835058055282163712","hi":null,"n":1}]}]}`},
		{"hist of nothing", hist, nil, mapOptions{}, "@x:\n\n", `{"type":"hist","data":{"@x":[]},"func":"hist","columns":[],"rows":[{"key":[],"buckets":[]}]}`},
		{"hist with keys", histNs, []entry{filled(histNs, []any{uint64(2)}, 70_000, 80_000, 200_000), filled(histNs, []any{uint64(1)}, 1, 2)}, mapOptions{}, `@x[write]:
[1ns]                  1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[2ns, 4ns)             1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|

@x[read]:
[65.5us, 131us)        2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[131us, 262us)         1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |

`, `{"type":"hist","data":{"@x":{"write":[{"min":1,"max":1,"count":1},{"min":2,"max":3,"count":1}],"read":[{"min":65536,"max":131071,"count":2},{"min":131072,"max":262143,"count":1}]}},"func":"hist","unit":"ns","columns":[""],"rows":[{"key":["write"],"buckets":[{"lo":1,"hi":2,"n":1},{"lo":2,"hi":4,"n":1}]},{"key":["read"],"buckets":[{"lo":65536,"hi":131072,"n":2},{"lo":131072,"hi":262144,"n":1}]}]}`},
		{"hist, divided", histNs, []entry{filled(histNs, []any{uint64(2)}, 1, 1, 2, 3, 3)}, mapOptions{div: 2}, `@x[read]:
[1ns]                  1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[2ns, 4ns)             1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|

`, `{"type":"hist","data":{"@x":{"read":[{"min":1,"max":1,"count":1},{"min":2,"max":3,"count":1}]}},"func":"hist","unit":"ns","columns":[""],"rows":[{"key":["read"],"buckets":[{"lo":1,"hi":2,"n":1},{"lo":2,"hi":4,"n":1}]}]}`},
		{"hist from a minimum", histMin, []entry{filled(histMin, nil, 1)}, mapOptions{}, `@x:
(..., 4KiB)            1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|

`, `{"type":"hist","data":{"@x":[{"max":4095,"count":1}]},"func":"hist","unit":"bytes","columns":[],"rows":[{"key":[],"buckets":[{"lo":null,"hi":4096,"n":1}]}]}`},
		{"hist from a minimum, above", histMin, []entry{filled(histMin, nil, 4096, 4608, 5120)}, mapOptions{}, `@x:
[4KiB, 4608B)          1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[4608B, 5KiB)          1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[5KiB, 6KiB)           1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|

`, `{"type":"hist","data":{"@x":[{"min":4096,"max":4607,"count":1},{"min":4608,"max":5119,"count":1},{"min":5120,"max":6143,"count":1}]},"func":"hist","unit":"bytes","columns":[],"rows":[{"key":[],"buckets":[{"lo":4096,"hi":4608,"n":1},{"lo":4608,"hi":5120,"n":1},{"lo":5120,"hi":6144,"n":1}]}]}`},

		{"lhist", lhist, []entry{filled(lhist, nil, negative(1), 2, 3, 7, 20)}, mapOptions{div: 2}, `@x:
(..., 0)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |
[0, 2)                 0 |                                                    |
[2, 4)                 2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[4, 6)                 0 |                                                    |
[6, 8)                 1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |
[8, 10)                0 |                                                    |
[10, ...)              1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |

`, `{"type":"hist","data":{"@x":[{"max":-1,"count":1},{"min":0,"max":1,"count":0},{"min":2,"max":3,"count":2},{"min":4,"max":5,"count":0},{"min":6,"max":7,"count":1},{"min":8,"max":9,"count":0},{"min":10,"count":1}]},"func":"lhist","columns":[],"rows":[{"key":[],"buckets":[{"lo":null,"hi":0,"n":1},{"lo":0,"hi":2,"n":0},{"lo":2,"hi":4,"n":2},{"lo":4,"hi":6,"n":0},{"lo":6,"hi":8,"n":1},{"lo":8,"hi":10,"n":0},{"lo":10,"hi":null,"n":1}]}]}`},
		{"lhist in K", lhistK, []entry{filled(lhistK, nil, 0, 1<<10, 2<<10)}, mapOptions{}, `@x:
[0, 1K)                1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[1K, 2K)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[2K, 3K)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|

`, `{"type":"hist","data":{"@x":[{"min":0,"max":1023,"count":1},{"min":1024,"max":2047,"count":1},{"min":2048,"max":3071,"count":1}]},"func":"lhist","columns":[],"rows":[{"key":[],"buckets":[{"lo":0,"hi":1024,"n":1},{"lo":1024,"hi":2048,"n":1},{"lo":2048,"hi":3072,"n":1}]}]}`},
		{"lhist of durations that are near", lhistNs, []entry{filled(lhistNs, nil, 999, 1_000_000, 1_001_000, 1_002_000, 1_002_500)}, mapOptions{}, `@x:
(..., 1ms)                 1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[1ms, 1.001ms)             1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[1.001ms, 1.002ms)         1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[1.002ms, 1.0025ms)        1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[1.0025ms, ...)            1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|

`, `{"type":"hist","data":{"@x":[{"max":999999,"count":1},{"min":1000000,"max":1000999,"count":1},{"min":1001000,"max":1001999,"count":1},{"min":1002000,"max":1002499,"count":1},{"min":1002500,"count":1}]},"func":"lhist","unit":"ns","columns":[],"rows":[{"key":[],"buckets":[{"lo":null,"hi":1000000,"n":1},{"lo":1000000,"hi":1001000,"n":1},{"lo":1001000,"hi":1002000,"n":1},{"lo":1002000,"hi":1002500,"n":1},{"lo":1002500,"hi":null,"n":1}]}]}`},

		{"scalars", scalarMap(ns, str16, u32), []entry{
			{key: []any{"a", uint64(1)}, value: []any{uint64(2000)}}, {key: []any{"b", nil}, value: []any{nil}}, {key: []any{"", uint64(3)}, value: []any{uint64(1)}}}, mapOptions{},
			"@x[b, -]: -\n@x[, 3]: 1ns\n@x[a, 1]: 2us\n",
			`{"type":"map","data":{"@x":{"b,":null,",3":1,"a,1":2000}},"unit":"ns","columns":["",""],"rows":[{"key":["b",null],"value":null},{"key":["",3],"value":1},{"key":["a",1],"value":2000}]}`},
		{"scalars, divided", scalarMap(ns, str16), []entry{{key: []any{"a"}, value: []any{uint64(2999)}}}, mapOptions{div: 1000}, "@x[a]: 2\n",
			`{"type":"map","data":{"@x":{"a":2}},"columns":[""],"rows":[{"key":["a"],"value":2}]}`},
		{"no scalar", scalarMap(u64), nil, mapOptions{}, "@x: 0\n", `{"type":"map","data":{"@x":0},"columns":[],"rows":[{"key":[],"value":0}]}`},
		{"strings", scalarMap(str16, u32), []entry{{key: []any{uint64(2)}, value: []any{"a b"}}, {key: []any{uint64(1)}, value: []any{"z\n"}}}, mapOptions{},
			"@x[1]: z\\n\n@x[2]: a b\n", `{"type":"map","data":{"@x":{"1":"z\u000a","2":"a b"}},"columns":[""],"rows":[{"key":[1],"value":"z\u000a"},{"key":[2],"value":"a b"}]}`},
		{"booleans", scalarMap(flag, flag), []entry{{key: []any{true}, value: []any{false}}, {key: []any{false}, value: []any{true}}}, mapOptions{},
			"@x[false]: true\n@x[true]: false\n", `{"type":"map","data":{"@x":{"false":true,"true":false}},"columns":[""],"rows":[{"key":[false],"value":true},{"key":[true],"value":false}]}`},
		{"booleans by value", scalarMap(flag, flag), []entry{{key: []any{false}, value: []any{true}}, {key: []any{true}, value: []any{false}}}, mapOptions{by: "value"},
			"@x[true]: false\n@x[false]: true\n", `{"type":"map","data":{"@x":{"true":false,"false":true}},"columns":[""],"rows":[{"key":[true],"value":false},{"key":[false],"value":true}]}`},
		{"tuples", pairs, []entry{{key: []any{uint64(2), addresses["fe80::1"]}, value: []any{uint64(1), "x"}}, {key: []any{uint64(99), nil}, value: []any{nil, "y z"}}}, mapOptions{},
			"@x[read, fe80::1]: (write, x)\n@x[unknown(0x63), -]: (-, y z)\n",
			`{"type":"map","data":{"@x":{"read,fe80::1":["write","x"],"99,":[null,"y z"]}},"columns":["",""],"rows":[{"key":["read","fe80::1"],"value":["write","x"]},{"key":[99,null],"value":[null,"y z"]}]}`},
	} {
		text, object := printed(t, output.Text, test.m, test.entries, test.o), printed(t, output.JSON, test.m, test.entries, test.o)
		if text != test.text {
			t.Errorf("%s:\n got %s\nwant %s", test.name, text, test.text)
		}
		if object != test.json+"\n" {
			t.Errorf("%s:\n got %s\nwant %s", test.name, object, test.json)
		}
		checkSchema(t, object)
	}
}

// TestOrder checks what is printed of a map, and in which order.
func TestOrder(t *testing.T) {
	counts := aggregation(agg.Agg{Func: agg.Count{}}, u64, str16)
	sums := aggregation(agg.Agg{Func: agg.Sum{}}, s64, s64)
	hists := aggregation(agg.Agg{Func: agg.NewHist(0, 0, 0)}, u64, str16)
	abcd := func() []entry {
		return []entry{filled(counts, []any{"d"}, 1), filled(counts, []any{"a"}, 1, 1, 1), filled(counts, []any{"c"}, 1, 1), filled(counts, []any{"b"}, 1)}
	}
	for _, test := range []struct {
		m       *mapInfo
		entries []entry
		o       mapOptions
		want    string
	}{
		{counts, abcd(), mapOptions{}, "b d c a"}, // those of one value by key
		{counts, abcd(), mapOptions{by: "value"}, "b d c a"},
		{counts, abcd(), mapOptions{by: "key"}, "a b c d"},
		{counts, abcd(), mapOptions{top: 2}, "c a"},
		{counts, abcd(), mapOptions{top: 2, by: "key"}, "a c"}, // the largest, by key
		{counts, abcd(), mapOptions{top: 9}, "b d c a"},
		{hists, []entry{filled(hists, []any{"a"}, 1, 1), filled(hists, []any{"b"}, 100)}, mapOptions{}, "b a"}, // by the number of values
		{sums, []entry{filled(sums, []any{int64(-1)}, 1), filled(sums, []any{int64(5)}, negative(7)), filled(sums, []any{int64(-2)}, 1)}, mapOptions{}, "5 -2 -1"},
		{scalarMap(str16, u64), []entry{{key: []any{uint64(7)}, value: []any{"a"}}, {key: []any{uint64(1) << 63}, value: []any{"b"}}, {key: []any{uint64(1)}, value: []any{"c"}}}, mapOptions{top: 2},
			"7 9223372036854775808"},
		{scalarMap(str16, u64), []entry{{key: []any{uint64(1)}, value: []any{"b"}}, {key: []any{uint64(2)}, value: []any{"a"}}}, mapOptions{by: "value"}, "2 1"},
	} {
		var keys []string
		for line := range strings.Lines(printed(t, output.Text, test.m, test.entries, test.o)) {
			if key := regexp.MustCompile(`^@x\[(.*)\]:`).FindStringSubmatch(line); key != nil {
				keys = append(keys, key[1])
			}
		}
		if got := strings.Join(keys, " "); got != test.want {
			t.Errorf("%+v: got %s, want %s", test.o, got, test.want)
		}
	}
}

// TestBuckets checks that what the lines of a histogram say are the bounds of its buckets: exactly, but for durations, which are
// rounded by less than a quarter of a bucket.
func TestBuckets(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	line := regexp.MustCompile(`^([\[(])([^,]+)(?:, ([^,]+))?([\])]) *(\d+) \|(@* *)\|$`)
	for range 2000 {
		m := randomHistogram(random)
		ranges := m.agg.Shape().(agg.Buckets)
		state := make([]uint64, m.agg.Words())
		first := random.IntN(len(state))
		for i := range min(len(state)-first, 8) {
			if _, _, below, above := ranges.Bounds(first+i, m.agg.Signed); above && !below && first+i < len(state)-1 {
				break // the buckets of a signed number from 2^63 on
			}
			state[first+i] = 1 + random.Uint64N(1<<random.IntN(40))
		}
		bucket := first
		var last string
		h := m.result(entry{state: state}, mapOptions{}).(result.Histogram)
		_, lines, _ := strings.Cut(printed(t, output.Text, m, []entry{{state: state}}, mapOptions{}), "\n")
		for text := range strings.Lines(strings.TrimSuffix(lines, "\n")) {
			match := line.FindStringSubmatch(strings.TrimSuffix(text, "\n"))
			if match == nil || len(match[6]) != 52 {
				t.Fatalf("%+v: %q", m.agg, text)
			}
			lo, hi := match[2], match[3]
			low, high, below, above := ranges.Bounds(bucket, m.agg.Signed)
			if below != (lo == "...") || above != (hi == "...") || (hi == "") != (!below && !above && high == low+1) {
				t.Fatalf("%+v: bucket %d is %q", m.agg, bucket, text)
			}
			if !below {
				m.checkBound(t, lo, low, h.Width(bucket))
			}
			if hi != "" && !above {
				m.checkBound(t, hi, high, h.Width(bucket+1))
			}
			if last != "" && hi != "" && lo != last || lo == hi {
				t.Fatalf("%+v: after %s comes %q", m.agg, last, text)
			}
			if n, _ := strconv.ParseUint(match[5], 10, 64); n != state[bucket] {
				t.Fatalf("%+v: bucket %d has %d: %q", m.agg, bucket, state[bucket], text)
			}
			last = hi
			bucket++
		}
		if bucket != first && bucket < len(state) && state[bucket] != 0 {
			t.Fatalf("%+v: no line for bucket %d", m.agg, bucket)
		}
	}
}

func randomHistogram(random *rand.Rand) *mapInfo {
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
func (m *mapInfo) checkBound(t *testing.T, written string, want, width uint64) {
	t.Helper()
	exact := float64(want)
	if m.agg.Signed {
		exact = float64(int64(want))
	}
	allowed := math.Abs(exact) * 1e-15
	if m.value[0].typ.Unit == event.Nanoseconds {
		allowed = max(allowed, float64(width)/4*1.001)
	}
	if off := math.Abs(readBound(t, written) - exact); off > allowed {
		t.Fatalf("%+v: %s is %v", m.agg, written, exact)
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
	}{
		{func(p *output.Printer) error { return p.Text([]byte("a \"b\"\n")) }, "a \"b\"\n", `{"type":"printf","data":"a \"b\"\u000a"}`},
		{func(p *output.Printer) error {
			return p.Time(appendTime(nil, &pattern{layout: "%T."}, time.Unix(0, 0).UTC()))
		}, "00:00:00.", `{"type":"time","data":"00:00:00."}`},
		{func(p *output.Printer) error { return p.Value(ns, nil, uint64(1500), false) }, "1.5us\n", `{"type":"value","data":1500,"unit":"ns"}`},
		{func(p *output.Printer) error { return p.Value(opcode, nil, uint64(2), false) }, "read\n", `{"type":"value","data":"read"}`},
		{func(p *output.Printer) error { return p.Value(str16, nil, "a b", false) }, "a b\n", `{"type":"value","data":"a b"}`},
		{func(p *output.Printer) error { return p.Value(str16, nil, nil, false) }, "-\n", `{"type":"value","data":null}`},
		{func(p *output.Printer) error { return p.Value(pair.typ, pair.elems, []any{uint64(1), nil}, false) }, "(write, -)\n", `{"type":"value","data":["write",null]}`},
		{func(p *output.Printer) error {
			return p.Value(event.Type{Kind: format.Array}, []event.Type{opcode}, []any{uint64(1), nil, uint64(2)}, false)
		}, "[write,-,read]\n", `{"type":"value","data":["write",null,"read"]}`},
		{func(p *output.Printer) error {
			m := aggregation(agg.Agg{Func: agg.Sum{}}, size, str16)
			return p.Element(m.result(filled(m, []any{"a"}, 4096), mapOptions{elapsed: 0}), m.unit(mapOptions{}))
		}, "4KiB\n", `{"type":"value","data":4096,"unit":"bytes"}`},
		{func(p *output.Printer) error {
			m := aggregation(agg.Agg{Func: agg.Rate{}}, u64)
			return p.Element(m.result(filled(m, nil, 3), mapOptions{elapsed: 20 * time.Second}), m.unit(mapOptions{}))
		}, "0.15/s\n", `{"type":"value","data":0.15}`},
		{func(p *output.Printer) error {
			m := aggregation(agg.Agg{Func: agg.NewHist(0, 0, 0)}, u64)
			return p.Element(m.result(filled(m, nil, 3), mapOptions{elapsed: 0}), m.unit(mapOptions{}))
		}, "[2, 4)                 1 |" + strings.Repeat("@", 52) + "|\n\n", `{"type":"value","data":[{"min":2,"max":3,"count":1}]}`},
	} {
		for f, want := range map[output.Format]string{output.Text: test.text, output.JSON: test.json + "\n"} {
			var b bytes.Buffer
			p := output.NewPrinter(&b, f, time.Time{})
			for range 2 { // nothing is left over from the first time
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
	m := aggregation(agg.Agg{Func: agg.Count{}}, u64, u64, str16)
	var entries []entry
	for i := range uint64(10_000) {
		entries = append(entries, entry{key: []any{i, "comm"}, state: []uint64{i * 7919 % 10_007}})
	}
	for _, f := range []output.Format{output.Text, output.JSON} {
		b.Run(string(f), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := output.NewPrinter(io.Discard, f, time.Time{}).Map(m.table(entries, mapOptions{})); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
