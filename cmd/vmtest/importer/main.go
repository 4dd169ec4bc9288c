// Command importer is a program of another module that imports the library. A test builds and runs it.
//
//	importer FILE    the opcodes and the slowest command of a recording of NVMe
//	importer         its own calls of getppid, on this machine
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"syscall"
	"time"

	"trace"
)

func main() {
	run := onThisMachine
	if len(os.Args) > 1 {
		run = func() error { return onRecording(os.Args[1]) }
	}
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

// command is a command of NVMe that ended.
type command struct {
	Disk    trace.Optional[string]        `trace:"disk"`
	Opcode  trace.Name                    `trace:"opcode"`
	Latency trace.Optional[time.Duration] `trace:"latency"`
}

func onRecording(name string) error {
	host, err := trace.OpenRecording(name)
	if err != nil {
		return err
	}
	defer host.Close()
	if err := printRows(host, "nvme:complete_rq { @[opcode] = count() }", func(run *trace.Run) error { return run.Wait() }); err != nil {
		return err
	}
	var slowest command
	for c, err := range trace.Events[command](context.Background(), host, "nvme:complete_rq") {
		if err != nil {
			return err
		}
		if c.Latency.Value > slowest.Latency.Value {
			slowest = c
		}
	}
	fmt.Println("slowest:", slowest.Disk, slowest.Opcode, slowest.Latency)
	return nil
}

func onThisMachine() error {
	host, err := trace.Open()
	if err != nil {
		return err
	}
	defer host.Close()
	return printRows(host, "syscall:enter / nr == getppid / { @[comm] = count() }", func(run *trace.Run) error {
		for range 100 {
			syscall.Getppid()
		}
		return run.Stop()
	}, trace.PID(os.Getpid()))
}

// printRows runs a program until the end of during, and prints its map.
func printRows(host *trace.Host, text string, during func(*trace.Run) error, o ...trace.RunOption) error {
	program, err := host.Compile("program", text, nil)
	if err != nil {
		return err
	}
	run, err := program.Start(context.Background(), o...)
	if err != nil {
		return err
	}
	defer run.Close()
	if err := during(run); err != nil {
		return err
	}
	for row, err := range run.Rows("@") {
		if err != nil {
			return err
		}
		fmt.Println(row.Key[0], row.Value)
	}
	return nil
}
