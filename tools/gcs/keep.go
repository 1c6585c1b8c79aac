package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

// keeper keeps objects in a folder, so that they outlive the process with their
// generations and metagenerations. Each bucket is a folder, each object is a
// file.
//
// The fake's own way (-root) writes content and metadata one after the other,
// and gives a new generation when metadata changes. A kill between the two
// leaves a state that never existed.
//
// keeper replaces a file in one step, before the change is answered. Until then
// conditions hides the change. So an answered change is kept, and an unanswered
// one is kept as a whole or not at all. Nothing is synced: a kill loses
// nothing, a power cut may. Unfinished resumable uploads are lost.
type keeper struct{ folder string }

// kept is the file of an object.
type kept struct {
	Attrs          fakestorage.ObjectAttrs
	Content        []byte
	Metageneration int64
}

func (k keeper) bucket(name string) string { return filepath.Join(k.folder, url.PathEscape(name)) }

func (k keeper) file(bucket, object string) string {
	sum := sha256.Sum256([]byte(object)) // an object's name may be too long for a file
	return filepath.Join(k.bucket(bucket), hex.EncodeToString(sum[:])+".json")
}

// load reads all kept buckets and objects.
func (k keeper) load() (buckets []string, objects []kept, err error) {
	folders, err := os.ReadDir(k.folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	for _, f := range folders {
		name, err := url.PathUnescape(f.Name())
		if err != nil {
			return nil, nil, err
		}
		buckets = append(buckets, name)
		files, err := filepath.Glob(filepath.Join(k.bucket(name), "*.json"))
		if err != nil {
			return nil, nil, err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, nil, err
			}
			var o kept
			if err := json.Unmarshal(text, &o); err != nil {
				return nil, nil, err
			}
			objects = append(objects, o)
		}
	}
	return buckets, objects, nil
}

func (k keeper) makeBucket(name string) error { return os.MkdirAll(k.bucket(name), 0o755) }

func (k keeper) put(o kept) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	file := k.file(o.Attrs.BucketName, o.Attrs.Name)
	if err := os.WriteFile(file+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

func (k keeper) remove(bucket, object string) error { return os.Remove(k.file(bucket, object)) }
