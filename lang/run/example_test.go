package run_test

import (
	"context"
	"fmt"

	"trace/lang/result"
	"trace/lang/run"
)

// A program runs on a recording, and its map is read as numbers: how many requests of each opcode took more than 2 ms.
func Example() {
	rec := must(run.OpenRecordings("../../scripts/testdata/nvme_latency.rec"))
	defer rec.Close()
	replay := must(run.NewReplay(run.Options{Text: "nvme:complete_rq / latency > 2ms / { @[opcode] = count() }"}, rec))
	ended := must(replay.Run(context.Background(), run.Outputs{}))
	defer ended.Close()
	for _, row := range must(ended.Tables())[0].Rows {
		n := row.Value.(result.Number)
		fmt.Printf("opcode %d: %d\n", row.Key[0], n.V)
	}
	// Output:
	// opcode 2: 199
	// opcode 1: 172
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
