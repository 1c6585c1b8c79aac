// Program versitygw is the S3 of the tests: versitygw on a folder, as a process
// of its own. It is a module by itself, because versitygw must not become a
// dependency of programs that use Croft.
//
// It does what `versitygw posix` does with the same settings. That program also
// links Azure, the scoutfs backend and versitygw's own integration tests.
//
//	ROOT_ACCESS_KEY=... ROOT_SECRET_KEY=... versitygw \
//		-listen 127.0.0.1:7070 -versions FOLDER FOLDER
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:7070", "host and port")
	region := flag.String("region", "us-east-1", "the region that requests are signed for")
	versions := flag.String("versions", "", "keep old versions of objects in this folder; default: keep none")
	flag.Parse()
	if err := run(*listen, *region, *versions, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "versitygw:", err)
		os.Exit(1)
	}
}

func run(listen, region, versions string, folders []string) error {
	if len(folders) != 1 {
		return errors.New("name the one folder that holds the buckets")
	}
	if err := (meta.XattrMeta{}).Test(folders[0]); err != nil {
		return fmt.Errorf("extended attributes in %s: %w", folders[0], err)
	}
	// The numbers here and below are the defaults of versitygw's own program.
	options := posix.PosixOpts{
		VersioningDir: versions, Concurrency: 5000, IOBufferSize: 1 << 20, CopyObjectThreshold: 5 << 30,
	}
	options.SetNewDirPerm(0o755)
	options.SetNewFilePerm(0o644)
	backend, err := posix.New(folders[0], meta.XattrMeta{}, options)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return embedgw.RunVersityGW(ctx, backend, &embedgw.Config{
		RootUserAccess: os.Getenv("ROOT_ACCESS_KEY"), RootUserSecret: os.Getenv("ROOT_SECRET_KEY"),
		Region: region, Ports: []string{listen}, KeepAlive: true, Quiet: true,
		MaxConnections: 250_000, MaxRequests: 100_000, MultipartMaxParts: 10_000,
	})
}
