package metrics

import (
	"math"
	"slices"
	"strconv"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trace/lang/metrics/family"
)

// addExemplars gives each exemplar to its classic bucket, and to the native ones if there are any. The classic bucket without a bound is
// only there if it has an exemplar.
func addExemplars(h *dto.Histogram, s *family.Series) {
	for _, e := range s.Buckets.Exemplars {
		at := slices.IndexFunc(h.Bucket, func(b *dto.Bucket) bool { return e.Value <= b.GetUpperBound() })
		if at < 0 {
			at = len(h.Bucket)
			h.Bucket = append(h.Bucket, &dto.Bucket{UpperBound: proto.Float64(math.Inf(1)), CumulativeCount: &s.Count})
		}
		h.Bucket[at].Exemplar = exemplarOf(e)
		if s.Buckets.HasNative {
			h.Exemplars = append(h.Exemplars, h.Bucket[at].Exemplar)
		}
	}
}

func exemplarOf(e family.Exemplar) *dto.Exemplar {
	label := &dto.LabelPair{Name: proto.String(family.ExemplarLabel), Value: proto.String(strconv.FormatUint(uint64(e.TID), 10))}
	return &dto.Exemplar{Label: []*dto.LabelPair{label}, Value: &e.Value, Timestamp: timestamppb.New(e.Time)}
}
