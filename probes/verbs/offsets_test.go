//go:build linux

package verbs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// releases are Debian 11, 12, 13 and sid, as `.ci/setup libibverbs` unpacks their libibverbs: rdma-core 33 to 65.
var releases = []string{"bullseye", "bookworm", "trixie", "sid"}

// elsewhere are members that the programs name in another way than infiniband/verbs.h, or do not read.
var elsewhere = map[string]string{
	"ibv_send_wr.remote_addr": "wr.rdma.remote_addr", "ibv_send_wr.rdma_rkey": "wr.rdma.rkey",
	"ibv_send_wr.swap": "wr.atomic.swap", "ibv_send_wr.atomic_rkey": "wr.atomic.rkey",
	"ibv_device.ops": "", "ibv_qp_ex.qp_base": "", "ibv_wc.rest": "",
}

// prefixes begin the names of verbs.h's enumerators.
var prefixes = map[string]string{
	"ibv_qp_type": "IBV_QPT_", "ibv_wr_opcode": "IBV_WR_", "ibv_send_flags": "IBV_SEND_", "ibv_wc_status": "IBV_WC_", "ibv_wc_opcode": "IBV_WC_",
}

// What trace knows of libibverbs' structs and numbers is what a compiler makes of the verbs.h of each release.
func TestOffsets(t *testing.T) {
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip(err)
	}
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			root := filepath.Join(cache, "trace-libibverbs", release)
			header, err := os.ReadFile(filepath.Join(root, "usr/include/infiniband/verbs.h"))
			if err != nil {
				t.Skipf(".ci/setup libibverbs has not been run: %v", err)
			}
			claims := append(claimsOfPrograms(t, string(header)), claimsOfFinder(string(header))...)
			if len(claims) < 120 {
				t.Errorf("only %d claims", len(claims))
			}
			if out, err := compile(t, root, claims); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			wrong := claim{text: "offsetof(struct ibv_qp, qp_num) == 56"}
			if out, err := compile(t, root, []claim{wrong}); err == nil || !strings.Contains(out, wrong.text) {
				t.Errorf("a wrong offset is accepted: %v\n%s", err, out)
			}
		})
	}
}

// A claim is something that must be true in C, and what must stand before it.
type claim struct{ before, text string }

func compile(t *testing.T, root string, claims []claim) (string, error) {
	t.Helper()
	var source strings.Builder
	source.WriteString("#include <stddef.h>\n#include <infiniband/verbs.h>\n")
	for _, c := range claims {
		fmt.Fprintf(&source, "%s\n_Static_assert(%s, \"%[2]s\");\n", c.before, c.text)
	}
	cmd := exec.Command("gcc", "--sysroot="+root, "-fsyntax-only", "-xc", "-")
	cmd.Stdin = strings.NewReader(source.String())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// claimsOfFinder are about the offsets that this package reads. A function that a release does not have yet is not looked for.
func claimsOfFinder(header string) []claim {
	at := func(name, member string, offset int) claim {
		return claim{text: fmt.Sprintf("offsetof(struct %s, %s) == %d", name, member, offset)}
	}
	claims := []claim{
		at("ibv_context", "cmd_fd", cmdFD), at("ibv_context", "abi_compat", abiCompat), at("ibv_qp", "context", 0),
		{text: fmt.Sprintf("sizeof(struct ibv_context) >= %d", contextSize())},
	}
	for call, offset := range calls {
		claims = append(claims, at("ibv_context", "ops."+call, offset))
	}
	for call, offset := range qpCalls {
		if strings.Contains(header, "(*"+call+")") {
			claims = append(claims, at("ibv_qp_ex", call, offset))
		}
	}
	return claims
}

var (
	structs      = regexp.MustCompile(`(?ms)^struct (ibv_\w+) \{\n(.*?)^\};`)
	enums        = regexp.MustCompile(`(?ms)^enum (ibv_\w+) \{\n(.*?)^\};`)
	bits         = regexp.MustCompile(`(?m)^enum \{[^}]*_BIT = [^}]*\};`)
	members      = regexp.MustCompile(`(?m)^\t(?:\w+) ([^:;]+);`)
	enumerators  = regexp.MustCompile(`(?m)^\t(ibv_\w+)__(\w+)`)
	namesOfBits  = map[string]string{"WITH_IMM_BIT": "IBV_WC_WITH_IMM", "RECV_BIT": "IBV_WC_RECV"}
	readAsArrays = []string{"ibv_wc", "ibv_sge", "ibv_data_buf"}
)

// claimsOfPrograms are about the structs and enums of the BPF programs, which stand there as C.
func claimsOfPrograms(t *testing.T, header string) (claims []claim) {
	t.Helper()
	files, err := filepath.Glob("../../bpf/verbs*.[ch]")
	if err != nil || len(files) == 0 {
		t.Fatal("no programs: ", err)
	}
	var source strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(text)
	}
	for _, s := range structs.FindAllStringSubmatch(source.String(), -1) {
		name, before := s[1], "struct trace_"+s[1]+" {\n"+s[2]+"};"
		for _, m := range members.FindAllStringSubmatch(s[2], -1) {
			for member := range strings.SplitSeq(m[1], ",") {
				member, _, _ = strings.Cut(strings.TrimSpace(member), "[")
				theirs, known := elsewhere[name+"."+member]
				switch {
				case !known:
					theirs = member
				case theirs == "":
					continue
				}
				claims = append(claims, claim{before, fmt.Sprintf("offsetof(struct trace_%s, %s) == offsetof(struct %[1]s, %[3]s)", name, member, theirs)})
				before = ""
			}
		}
	}
	for _, name := range readAsArrays {
		claims = append(claims, claim{text: fmt.Sprintf("sizeof(struct trace_%s) == sizeof(struct %[1]s)", name)})
	}
	for _, e := range enums.FindAllStringSubmatch(source.String(), -1) {
		before := "enum trace_" + e[1] + " {\n" + e[2] + "};"
		for _, m := range enumerators.FindAllStringSubmatch(e[2], -1) {
			theirs := prefixes[m[1]] + m[2]
			if regexp.MustCompile(`\b` + theirs + `\b`).MatchString(header) {
				claims = append(claims, claim{before, fmt.Sprintf("(int)%s__%s == (int)%s", m[1], m[2], theirs)})
				before = ""
			}
		}
	}
	before := bits.FindString(source.String())
	for ours, theirs := range namesOfBits {
		claims = append(claims, claim{before, fmt.Sprintf("1 << %s == %s", ours, theirs)})
		before = ""
	}
	return claims
}
