package output

import (
	"os"
	"strings"
	"testing"
)

// The live view needs a terminal.
func TestLiveWithoutTerminal(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if _, err := NewLive(LiveOptions{Screen: null}); err == nil || !strings.HasPrefix(err.Error(), "--live: ") {
		t.Error(err)
	}
}
