package probes

import (
	"reflect"
	"testing"

	"github.com/mdlayher/netlink"
)

// encode makes attributes.
func encode(t testing.TB, add func(*netlink.AttributeEncoder)) []byte {
	t.Helper()
	ae := netlink.NewAttributeEncoder()
	add(ae)
	data, err := ae.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func summary(counts ...rdmaCount) func(*netlink.AttributeEncoder) {
	return func(ae *netlink.AttributeEncoder) {
		ae.Uint32(nldevDevIndex, 3)
		ae.String(nldevDevName, "mlx5_0")
		ae.Nested(nldevSummary, func(ae *netlink.AttributeEncoder) error {
			for _, c := range counts {
				ae.Nested(nldevSummaryEntry, func(ae *netlink.AttributeEncoder) error {
					ae.String(nldevSummaryName, c.kind)
					ae.Uint64(nldevSummaryCurr, c.n)
					return nil
				})
			}
			return nil
		})
	}
}

func protectionDomains(contexts ...uint32) func(*netlink.AttributeEncoder) {
	return func(ae *netlink.AttributeEncoder) {
		ae.Uint32(nldevDevIndex, 3)
		ae.Nested(nldevResPD, func(ae *netlink.AttributeEncoder) error {
			ae.Nested(nldevResPDEntry, func(ae *netlink.AttributeEncoder) error {
				ae.String(28, "ib_core") // RDMA_NLDEV_ATTR_RES_KERN_NAME; the kernel's own PD has no context
				return nil
			})
			for _, n := range contexts {
				ae.Nested(nldevResPDEntry, func(ae *netlink.AttributeEncoder) error {
					ae.Uint32(nldevResCtxn, n)
					return nil
				})
			}
			return nil
		})
	}
}

func TestDecodeDevice(t *testing.T) {
	d, err := decodeDevice(encode(t, summary(rdmaCount{"pd", 1}, rdmaCount{"ctx", 1 << 40})))
	want := rdmaDevice{index: 3, name: "mlx5_0", counts: []rdmaCount{{"pd", 1}, {"ctx", 1 << 40}}}
	if err != nil || !reflect.DeepEqual(d, want) {
		t.Errorf("%+v, %v, want %+v", d, err, want)
	}
	if d, err := decodeDevice(encode(t, func(ae *netlink.AttributeEncoder) { ae.Uint16(nldevDevIndex, 1) })); err == nil {
		t.Errorf("an index of two bytes gives %+v", d)
	}
}

func TestContextsOf(t *testing.T) {
	first, second := encode(t, protectionDomains(0, 7)), encode(t, protectionDomains(7, 8, 8))
	n, err := contextsOf([]netlink.Message{{Data: first}, {Data: second}})
	if err != nil || n != 3 {
		t.Errorf("%d contexts, %v, want 0, 7 and 8", n, err)
	}
	if _, err := contextsOf([]netlink.Message{{Data: first[:len(first)-2]}}); err == nil {
		t.Error("half an attribute is no error")
	}
}

func TestEntriesOf(t *testing.T) {
	table := func(entries ...uint32) func(*netlink.AttributeEncoder) {
		return func(ae *netlink.AttributeEncoder) {
			ae.Uint32(nldevDevIndex, 3)
			ae.Nested(nldevResQP, func(ae *netlink.AttributeEncoder) error {
				for _, n := range entries {
					ae.Nested(20, func(ae *netlink.AttributeEncoder) error { // RDMA_NLDEV_ATTR_RES_QP_ENTRY
						ae.Uint32(21, n) // RDMA_NLDEV_ATTR_RES_LQPN
						return nil
					})
				}
				return nil
			})
		}
	}
	parts := []netlink.Message{{Data: encode(t, table(1, 1, 17))}, {Data: encode(t, table())}, {Data: encode(t, table(18))}}
	if n, err := entriesOf(parts, nldevResQP); n != 4 || err != nil {
		t.Errorf("%d entries, %v, want 4", n, err)
	}
	if n, err := entriesOf(parts, nldevResPD); n != 0 || err != nil {
		t.Errorf("%d entries of another table, %v", n, err)
	}
	if _, err := entriesOf([]netlink.Message{{Data: []byte{1}}}, nldevResQP); err == nil {
		t.Error("a part that is no list of attributes has entries")
	}
}

func TestDecodeShared(t *testing.T) {
	for _, test := range []struct {
		add  func(*netlink.AttributeEncoder)
		want bool
	}{
		{func(ae *netlink.AttributeEncoder) { ae.Uint8(nldevNetnsMode, 0) }, false},
		{func(ae *netlink.AttributeEncoder) { ae.Uint8(nldevNetnsMode, 1) }, true},
		{func(ae *netlink.AttributeEncoder) {}, true},
	} {
		if got, err := decodeShared(encode(t, test.add)); err != nil || got != test.want {
			t.Errorf("%v, %v, want %v", got, err, test.want)
		}
	}
}

// Whatever comes instead of a reply of the kernel is an error or is read, and both at once.
func FuzzDecodeRDMA(f *testing.F) {
	f.Add(encode(f, summary(rdmaCount{"qp", 2}, rdmaCount{"cm_id", 0})))
	f.Add(encode(f, protectionDomains(1, 2)))
	f.Add(encode(f, func(ae *netlink.AttributeEncoder) {
		ae.Nested(nldevResQP, func(ae *netlink.AttributeEncoder) error {
			ae.Bytes(20, nil)
			return nil
		})
	}))
	f.Add(encode(f, func(ae *netlink.AttributeEncoder) { ae.Uint8(nldevNetnsMode, 1) }))
	f.Fuzz(func(t *testing.T, data []byte) {
		if d, err := decodeDevice(data); err == nil {
			if len(d.name) > len(data) || 8*len(d.counts) > len(data) {
				t.Errorf("%d bytes have a name of %d and %d counts", len(data), len(d.name), len(d.counts))
			}
		}
		if n, err := contextsOf([]netlink.Message{{Data: data}}); err == nil && 8*n > uint64(len(data)) {
			t.Errorf("%d bytes name %d contexts", len(data), n)
		}
		if n, err := entriesOf([]netlink.Message{{Data: data}}, nldevResQP); err == nil && 4*n > len(data) {
			t.Errorf("%d bytes have %d entries", len(data), n)
		}
		decodeShared(data)
	})
}
