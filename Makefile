# Two commands do everything on a fresh Debian or Ubuntu machine: make demo, make test.

KERNEL ?= 6.12
RUN    ?= TestVM
# The tests in virtual machines that make test has time for; make vmtest runs all. MAIN runs on two kernels: every object is
# loaded, and NVMe and QPs match other programs.
MAIN   := TestVM(Load|Session|TypelessVariant|NothingIsMissing|Unseen|Differential|Nvme|ScriptNvmeLatency|IbConnections|IbFilter|IbFailure)
# On 6.1, whose verifier accepts less: what the kernel can run.
OLDER  := TestVMConstructs$$
# On 6.12: each field alone, the same numbers as bpftrace, tests of the host, and that all scripts attach.
HOST   := TestVM(Compat|FieldsAlone|SameNumbersAsBpftrace|IbObjectFields|ScriptsAttach|Sched(uler|Waker|Throttle|Hung)|NetCounters|RdmaCounters|Block|OomKill|MemoryLimits|Cache|FaultsAndMappings)
# Tests of the verbs data path: every work request and completion, of any program.
VERBS  := TestVMVerbs(|Complete|Open|Doctor)$$
# Packages that share data between goroutines: their tests run with the race detector, except ALONE, in which it finds nothing: they
# compute in one goroutine for minutes, run hundreds of programs that do the same, or run other programs. Each test runs once.
RACED  := . ./cmd/trace ./cmd/trace-web ./repl ./lang/exec ./lang/run ./lang/serve ./lang/metrics ./lang/metrics/family ./lang/output ./probes ./probes/kernel ./probes/symbols ./probes/recording
ALONE  := Test(Stacks|Filters|DocExamples|DocLive|Layers|EveryMessageHasATest|CompletionWithoutPackage|Perfetto|Words|NobodyAsksFor.*|CirclesAreSmall|CompletionInQuotes|HelpWord|DocHelp|ScrapeIsCheap|Package|Manifest|Prometheus|Differential|DifferentialKept|Specialize.*|StackLeft|AgainstBig|AttachDetachCycles|CutAnywhere|Corrupted|Ring|FullDisk|SameTextAsBpftrace|ManualSameAsBpftrace|SameTrialsAsBpftrace|ToolsOfBpftrace)
# Root file systems of other releases of Debian, whose programs tests run.
ROOTS  := $(addprefix root-,bpftrace systemd prometheus libibverbs)
ARCH   ?=
PREFIX ?= /usr/local
DESTDIR ?=
DEB    ?= .
CLANG  ?= clang
STRIP  ?= llvm-strip
OBJCOPY ?= llvm-objcopy

# Found, and installed if needed, when a recipe uses it.
GO = $(or $(shell .ci/setup go),$(error no Go: .ci/setup go failed, see above))

KERNELS := 5.10 6.1 6.12 7.2 arm64
# These preempt tasks inside BPF programs, as 7.2 does. They run only the tests of preemption and of loading.
PREEMPTING := 6.1-rt 6.12-full
CROWD      := TestVM(Crowd|Load)
SOURCES := $(wildcard bpf/*.bpf.c)
OBJECTS := $(foreach a,amd64 arm64,$(patsubst bpf/%.c,bpf/$(a)/%.o.zst,$(SOURCES)))

.PHONY: help build install deb generate test race vmtest recordings demo bench lint clean FORCE $(ROOTS)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## two static binaries, ./trace and ./trace-web; ARCH=arm64 for that machine
	CGO_ENABLED=0 GOARCH=$(ARCH) $(GO) build -trimpath -ldflags='-s -w' -o . ./cmd/trace ./cmd/trace-web

install: build ## the binaries, the manual page and completion for bash, zsh and fish; PREFIX=/usr/local, DESTDIR=
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/bin trace trace-web
	install -d $(addprefix $(DESTDIR)$(PREFIX)/share/,man/man1 bash-completion/completions zsh/site-functions fish/vendor_completions.d)
	$(GO) run ./cmd/trace man | $(GO) tool go-md2man > $(DESTDIR)$(PREFIX)/share/man/man1/trace.1
	$(GO) run ./cmd/trace completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/trace
	$(GO) run ./cmd/trace completion zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_trace
	$(GO) run ./cmd/trace completion fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/trace.fish

deb: build ## a Debian package of all that, with services for systemd; ARCH=arm64 for that machine, DEB=FOLDER
	rm -rf .vmtest/deb
	$(MAKE) --no-print-directory install DESTDIR=.vmtest/deb PREFIX=/usr >/dev/null
	@cmd/trace-web/deploy/deb/build .vmtest/deb $$(GOARCH=$(ARCH) $(GO) env GOARCH) $(DEB)

generate: bpf/syscall_nr.h $(OBJECTS) ## compile the probes; Debian 12's clang gives the same bytes as the objects here

bpf/syscall_nr.h: FORCE
	@sh bpf/syscall_nr.sh "$$($(GO) list -f '{{.Dir}}' golang.org/x/sys/unix)" > $@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

# The object must not contain the folder: the same bytes everywhere. There is no bpf/bpf, so clang finds no text of lines to put
# into .BTF.
define compile
bpf/$(1)/%.o.zst: bpf/%.c bpf/strip.sh $(wildcard bpf/*.h)
	@.ci/setup bpf
	cd bpf && $(CLANG) -O2 -g -Wall -Werror -target bpf -mcpu=v2 -D__TARGET_ARCH_$(2) \
		-fdebug-compilation-dir=bpf -ffile-prefix-map="$$$$PWD"=bpf -c $$(<F) -o $(1)/$$*.o
	@sh bpf/strip.sh $(STRIP) $(OBJCOPY) bpf/$(1)/$$*.o
	@zstd -q -19 --rm -f bpf/$(1)/$$*.o
endef
$(eval $(call compile,amd64,x86))
$(eval $(call compile,arm64,arm64))

test: ## all tests; on real kernels the main ones, on 6.1 and 6.12, the tests of preemption, and on all that each probe loads
	@.ci/setup go vm manual shells race >/dev/null
	$(MAKE) --no-print-directory -j lint $(ROOTS)
	$(GO) test -timeout 20m $$($(GO) list ./... | grep -vxF "$$($(GO) list $(RACED))")
	$(GO) test -timeout 20m -run '^$(ALONE)$$' $(RACED)
	$(MAKE) race
	.ci/vmtest 6.12 '$(MAIN)|$(HOST)|TestVMDocs|$(VERBS)|TestVMServePrometheus|TestVMHostile|TestVMChanges|TestVMRefuse' 6.1 '$(MAIN)|$(OLDER)' 6.12-full TestVMCrowd 5.10 'TestVMLoad|TestVMCompat|TestVMHostile' 7.2 TestVMLoad

# Fetching them takes little of the CPU time that lint needs.
$(ROOTS): root-%:
	@.ci/setup $* >/dev/null

race: ## tests of packages that share data between goroutines, with the race detector
	@.ci/setup race
	CGO_ENABLED=1 $(GO) test -timeout 20m -race -skip '^$(ALONE)$$' $(RACED)

vmtest: ## the tests that need NVMe and RDMA, in a VM; KERNEL=5.10|6.1|6.1-rt|6.12|6.12-full|7.2|arm64|all, RUN=REGEXP
	@.ci/setup vm
ifeq ($(KERNEL),all)
	@rm -f .vmtest/variants.*
	@for k in $(KERNELS); do FULL=1 $(MAKE) --no-print-directory vmtest KERNEL=$$k || exit 1; done
	@for k in $(PREEMPTING); do $(MAKE) --no-print-directory vmtest KERNEL=$$k RUN='$(CROWD)' || exit 1; done
	@.ci/variants
else
	.ci/vmtest $(KERNEL) '$(RUN)'
endif

recordings: ## record scripts/testdata and cmd/trace/testdata/lines anew in VMs, and the examples of scripts
	rm -f .vmtest/log.6.12.*
	$(MAKE) vmtest KERNEL=6.12 RUN='^TestVM(ScriptReplay|.*Lines)$$'
	grep -ah '^RECORDING ' .vmtest/log.6.12.* | while read -r _ file data; do echo "$$data" | base64 -d > $$file || exit 1; done
	$(GO) test ./cmd/trace -run TestScript -scripts.update || $(GO) test ./cmd/trace -run TestScript

demo: ## builds ./trace, and shows the main job on real kernel events: this machine's devices if it has them, else a VM's
	@.ci/demo

bench: build ## cost, start, memory and throughput against bpftrace and hand-written C, in one run
	@.ci/bench

# staticcheck looks at these builds together: what only one of them uses is not unused.
define builds
plain:
vm: -tags=vm
endef
export builds

lint: ## gofmt, go vet and staticcheck, and that recordings are read on other systems
	@test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags vm ./...
	echo "$$builds" | $(GO) tool staticcheck -matrix ./...
	for os in darwin freebsd windows; do CGO_ENABLED=0 GOOS=$$os $(GO) build -o /dev/null ./cmd/trace || exit 1; done

clean: ## remove what was built here
	rm -rf trace trace-web trace_*.deb .vmtest
