// Program etcd is the etcd of the tests: one member of a cluster, as a process
// of its own. It is a module by itself, because etcd's server must not become a
// dependency of programs that use Croft.
//
// Its configuration is a file in the form that etcd itself reads:
//
//	etcd --config-file member.yaml
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"go.etcd.io/etcd/server/v3/embed"
)

func main() {
	file := flag.String("config-file", "", "the member's configuration, as etcd reads it")
	flag.Parse()
	if err := run(*file); err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		os.Exit(1)
	}
}

func run(file string) error {
	if file == "" {
		return fmt.Errorf("no --config-file")
	}
	config, err := embed.ConfigFromFile(file)
	if err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	member, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	defer member.Close()
	select {
	case err := <-member.Err():
		return err
	case <-member.Server.StopNotify():
		return fmt.Errorf("the server stopped by itself")
	case <-stop:
		return nil
	}
}
