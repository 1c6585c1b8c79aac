package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
)

// stamped is the time of every file in an archive. The time of the build would
// make two archives of the same source differ. Zip knows no time before 1980.
var stamped = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)

// entry is one file of an archive.
type entry struct {
	name string // name in the archive
	file string // path of its content
	mode fs.FileMode
}

// writeArchive writes the entries, in one folder, to the archive at path. The
// suffix of the path selects the type of archive.
func writeArchive(path, folder string, entries []entry) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	var write func(io.Writer, string, []entry) error
	switch {
	case strings.HasSuffix(path, ".tar.gz"):
		write = packTar
	case strings.HasSuffix(path, ".zip"):
		write = packZip
	default:
		write = func(io.Writer, string, []entry) error { return fmt.Errorf("%s: unknown type of archive", path) }
	}
	return errors.Join(write(f, folder, entries), f.Close())
}

func packTar(to io.Writer, folder string, entries []entry) error {
	zipped := gzip.NewWriter(to)
	archive := tar.NewWriter(zipped)
	for _, e := range entries {
		content, err := os.ReadFile(e.file)
		if err != nil {
			return err
		}
		// The header names no owner: user and group are 0, without names.
		if err := archive.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: folder + "/" + e.name, Size: int64(len(content)),
			Mode: int64(e.mode.Perm()), ModTime: stamped, Format: tar.FormatUSTAR,
		}); err != nil {
			return err
		}
		if _, err := archive.Write(content); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), zipped.Close())
}

func packZip(to io.Writer, folder string, entries []entry) error {
	archive := zip.NewWriter(to)
	for _, e := range entries {
		content, err := os.ReadFile(e.file)
		if err != nil {
			return err
		}
		header := &zip.FileHeader{Name: folder + "/" + e.name, Method: zip.Deflate, Modified: stamped}
		header.SetMode(e.mode.Perm())
		w, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := w.Write(content); err != nil {
			return err
		}
	}
	return archive.Close()
}
