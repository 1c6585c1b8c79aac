package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// writeArchive writes the entries, in one folder, to the archive at path. The
// suffix of the path selects the type of archive. All files get the same time:
// the time of the build would make two archives of the same source differ.
func writeArchive(path, folder string, at time.Time, entries []entry) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	var write func(io.Writer, string, time.Time, []entry) error
	switch {
	case strings.HasSuffix(path, ".tar.gz"):
		write = packTar
	case strings.HasSuffix(path, ".zip"):
		write = packZip
	default:
		write = func(io.Writer, string, time.Time, []entry) error {
			return fmt.Errorf("%s: unknown type of archive", path)
		}
	}
	return errors.Join(write(f, folder, at, entries), f.Close())
}

// level is how hard packTar compresses. Tests compress less: see TestMain.
var level = gzip.DefaultCompression

func packTar(to io.Writer, folder string, at time.Time, entries []entry) error {
	zipped, err := gzip.NewWriterLevel(to, level)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(zipped)
	for _, e := range entries {
		content, err := os.ReadFile(e.file)
		if err != nil {
			return err
		}
		// The header names no owner: user and group are 0, without names.
		if err := archive.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: folder + "/" + e.name, Size: int64(len(content)),
			Mode: int64(e.mode.Perm()), ModTime: at, Format: tar.FormatUSTAR,
		}); err != nil {
			return err
		}
		if _, err := archive.Write(content); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), zipped.Close())
}

func packZip(to io.Writer, folder string, at time.Time, entries []entry) error {
	archive := zip.NewWriter(to)
	for _, e := range entries {
		content, err := os.ReadFile(e.file)
		if err != nil {
			return err
		}
		header := &zip.FileHeader{Name: folder + "/" + e.name, Method: zip.Deflate, Modified: at}
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
