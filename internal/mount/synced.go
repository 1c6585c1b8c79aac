package mount

import (
	"path/filepath"
	"strings"

	"github.com/croft-dev/croft/internal/fsys"
)

// syncedElements are names of folders whose files a program copies between
// machines, minutes later. Such a program also renames files that it takes for
// conflicts. Each machine would hold the lease in its own copy.
var syncedElements = []struct{ name, service string }{
	{"Mobile Documents", "iCloud Drive"},
	{"iCloud Drive", "iCloud Drive"},
	{"iCloudDrive", "iCloud Drive"},
	// On macOS: ~/Library/CloudStorage/Dropbox, OneDrive-Personal,
	// GoogleDrive-…
	{"CloudStorage", "a cloud drive"},
	{"Dropbox", "Dropbox"},
	{"OneDrive", "OneDrive"},
	{"Google Drive", "Google Drive"},
	{"GoogleDrive", "Google Drive"},
	{"Nextcloud", "Nextcloud"},
	{"ownCloud", "ownCloud"},
	{"Box Sync", "Box"},
	{"pCloudDrive", "pCloud"},
}

// syncedMarkers are files that such programs keep in the folders they copy.
var syncedMarkers = []struct{ name, service string }{
	{".dropbox", "Dropbox"},
	{".dropbox.cache", "Dropbox"},
	{".stfolder", "Syncthing"},
	{".owncloudsync.log", "ownCloud"},
	{".nextcloudsync.log", "Nextcloud"},
}

// SyncedBy returns the service that copies the files at a path, and the folder
// or file that shows it. It returns "" if it knows of none.
func SyncedBy(fsy fsys.FS, path string) (service, where string) {
	resolved := path
	// The part of the path that exists may lead elsewhere through links.
	for dir := path; ; dir = filepath.Dir(dir) {
		if target, err := filepath.EvalSymlinks(dir); err == nil {
			rest, _ := filepath.Rel(dir, path)
			resolved = filepath.Join(target, rest)
			break
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	for _, candidate := range []string{path, resolved} {
		if service, where = SyncedByName(candidate); service != "" {
			return service, where
		}
	}
	for dir := resolved; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		for _, m := range syncedMarkers {
			marker := filepath.Join(dir, m.name)
			if _, err := fsy.Lstat(fsys.Anywhere(marker)); err == nil {
				return m.service, marker
			}
		}
	}
	return "", ""
}

// SyncedByName is SyncedBy, but looks only at the names in the path.
func SyncedByName(path string) (service, where string) {
	for dir := path; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		name := filepath.Base(dir)
		for _, e := range syncedElements {
			// "Dropbox (Personal)", "OneDrive - Contoso"
			if name == e.name || strings.HasPrefix(name, e.name+" (") || strings.HasPrefix(name, e.name+" - ") {
				return e.service, dir
			}
		}
	}
	return "", ""
}
