// Command nfpm makes a package for Debian or Red Hat from a description. It is
// the library nfpm without the parts for other systems. tools/dist runs it:
//
//	nfpm DESCRIPTION PACKAGE
//
// DESCRIPTION is a file in nfpm's format. The end of the name PACKAGE selects
// the type: .deb or .rpm.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: nfpm DESCRIPTION PACKAGE")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "nfpm:", err)
		os.Exit(1)
	}
}

func write(description, file string) error {
	text, err := os.Open(description)
	if err != nil {
		return err
	}
	defer text.Close()
	// A variable in the description stays empty: the shell must not matter.
	config, err := nfpm.ParseWithEnvMapping(text, func(string) string { return "" })
	if err != nil {
		return err
	}
	kind := strings.TrimPrefix(filepath.Ext(file), ".")
	packager, err := nfpm.Get(kind)
	if err != nil {
		return err
	}
	info, err := config.Get(kind)
	if err != nil {
		return err
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(packager.Package(nfpm.WithDefaults(info), out), out.Close())
}
