package spill

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/snapshot"
)

var self = Identity{SystemIdentifier: 17446744073709551615, Node: "db1:5432", ExtensionVersion: "1.0"}

const (
	t0    = snapshot.Micros(800_000_000_000_000)
	limit = 64 << 20
)

// random makes things up, from a seed that it tells.
type random struct {
	*rand.Rand
	pool []*snapshot.Session
}

func newRandom(t testing.TB) *random {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return &random{Rand: rand.New(rand.NewPCG(seed, 1))}
}

func (r *random) micros() snapshot.Micros {
	switch r.IntN(5) {
	case 0:
		return 0
	case 1:
		return snapshot.Micros(r.Int64() - 1<<62)
	default:
		return t0.Add(time.Duration(r.IntN(1e10)))
	}
}

func (r *random) int64() int64 {
	if r.IntN(2) == 0 {
		return r.Int64N(100)
	}
	return int64(r.Uint64())
}

func (r *random) text() string {
	b := make([]byte, r.IntN(4)*r.IntN(40))
	for i := range b {
		b[i] = byte(r.IntN(256)) // bytes as the server had them
	}
	return string(b)
}

// fill sets every field that a value has, so that one left out is noticed.
func (r *random) fill(v reflect.Value) {
	switch v.Interface().(type) {
	case snapshot.Micros:
		v.SetInt(int64(r.micros()))
		return
	case *snapshot.Session:
		switch n := r.IntN(len(r.pool) + 3); {
		case n < len(r.pool):
			v.Set(reflect.ValueOf(r.pool[n]))
		case n > len(r.pool):
			s := new(snapshot.Session)
			r.fill(reflect.ValueOf(s).Elem())
			r.pool = append(r.pool, s)
			v.Set(reflect.ValueOf(s))
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		if m, ok := v.Addr().Interface().(*history.DeadlockMember); ok {
			defer func() {
				if m.Session == nil {
					m.Session = new(snapshot.Session) // is always there
				}
			}()
		}
		if c, ok := v.Addr().Interface().(*history.Conflict); ok {
			defer func() {
				if c.Session == nil {
					c.Session = new(snapshot.Session) // is always there
				}
			}()
		}
		if b, ok := v.Addr().Interface().(*history.Batch); ok {
			defer func() {
				for i := range b.Texts {
					if b.Texts[i] == nil {
						b.Texts[i] = new(snapshot.Session) // is always there
					}
				}
			}()
		}
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name != "Ticket" && name != "Formerly" && name != "_" { // whoever waits in flush() is gone
				r.fill(v.Field(i))
			}
		}
	case reflect.Slice:
		if n := r.IntN(4); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				r.fill(v.Index(i))
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		r.fill(v.Elem())
	case reflect.String:
		v.SetString(r.text())
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Float64:
		v.SetFloat(r.NormFloat64())
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(r.Uint64() >> (64 - v.Type().Bits()))
	case reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(r.int64() >> (64 - v.Type().Bits()))
	default:
		panic("no random " + v.Type().String())
	}
}

func (r *random) content() Content {
	var c Content
	r.fill(reflect.ValueOf(&c).Elem())
	for i := range c.Entries {
		c.Entries[i].Batch.Run |= 1
	}
	return c
}

func write(t testing.TB, dir string, c Content, o Options) Written {
	t.Helper()
	w, err := Write(dir, self, c, o)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestRoundTrip(t *testing.T) {
	r := newRandom(t)
	dir := t.TempDir()
	for range 300 {
		want := r.content()
		w := write(t, dir, want, Options{})
		got, err := Load(dir, self, limit)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(*got, want) {
			t.Fatalf("got %+v\nwant %+v", got, want)
		}
		info, err := os.Stat(filepath.Join(dir, FileName))
		if err != nil || info.Size() != w.Bytes || w.Rows != want.Rows() || w.Lost != 0 {
			t.Fatalf("the file: %v %v, told: %+v", info, err, w)
		}
	}
}

func TestOneLifeToTheNext(t *testing.T) {
	dir := t.TempDir()
	if c, err := Load(dir, self, limit); err != nil || c != nil || c.CompleteTo() != 0 {
		t.Errorf("without a file: %+v, %v", c, err)
	}
	old := syscall.Umask(0)
	write(t, dir, Content{Runs: []history.Run{{ID: 4, CompleteTo: 5}, {ID: 7, CompleteTo: t0}}}, Options{})
	syscall.Umask(old)
	if info, err := os.Stat(filepath.Join(dir, FileName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v; want it for its owner alone", info, err)
	}
	for _, name := range []string{FileName, RefusedName, newName} {
		if !strings.HasPrefix(name, "pgsql_tmp") {
			t.Errorf("base backups would take %s along", name)
		}
	}
	// A life that was ended while it wrote.
	if err := os.WriteFile(filepath.Join(dir, newName), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // reading does not remove it: it may be needed again
		if c, err := Load(dir, self, limit); err != nil || c.CompleteTo() != t0 {
			t.Errorf("got %+v, %v", c, err)
		}
	}
	for range 2 {
		if err := Remove(dir); err != nil {
			t.Error(err)
		}
	}
	if names := filesIn(t, dir); names != "" {
		t.Errorf("left: %s", names)
	}
}

func filesIn(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// Another version of the extension with the same format is read.
func TestAnotherVersionIsRead(t *testing.T) {
	dir := t.TempDir()
	c := newRandom(t).content()
	c.Runs = []history.Run{{ID: 1, CompleteTo: 2}}
	if _, err := Write(dir, Identity{self.SystemIdentifier, self.Node, "0.9"}, c, Options{}); err != nil {
		t.Fatal(err)
	}
	if got, err := Load(dir, self, limit); err != nil || got.CompleteTo() != 2 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Whatever the node is called now, the file that it wrote itself is its own; a
// copy is not, and nothing of another server ever is.
func TestWhoseFile(t *testing.T) {
	renamed := Identity{self.SystemIdentifier, "db2:5433", "1.0"}
	copied := func(t *testing.T, path string) {
		if err := errors.Join(os.Rename(path, path+".original"), os.WriteFile(path, mustReadFile(t, path+".original"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	moved := func(t *testing.T, path string) {
		if err := errors.Join(SetAside(filepath.Dir(path)), os.Rename(filepath.Join(filepath.Dir(path), RefusedName), path)); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name     string
		file     func(*testing.T, string)
		reader   Identity
		refused  string
		formerly string
	}{
		{"its own", nil, self, "", ""},
		{"its own, renamed back", moved, self, "", ""},
		{"a copy, same name", copied, self, "", ""},
		{"new name", nil, renamed, "", self.Node},
		{"new name, renamed back", moved, renamed, "", self.Node},
		{"a copy, another name", copied, renamed, "is a copy of the file of node", ""},
		{"another server, same inode", nil, Identity{1, self.Node, "1.0"}, "is of another server", ""},
		{"another server, same inode, another name", nil, Identity{1, "db2:5433", "1.0"}, "is of another server", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, Content{Runs: []history.Run{{ID: 1, CompleteTo: 2}}, Entries: []Entry{{Batch: &history.Batch{Run: 1}}}}, Options{})
			if tt.file != nil {
				tt.file(t, filepath.Join(dir, FileName))
			}
			c, err := Load(dir, tt.reader, limit)
			if tt.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tt.refused) {
					t.Errorf("got %+v, %v; want it refused", c, err)
				}
				return
			}
			if err != nil || c.CompleteTo() != 2 || c.Formerly != tt.formerly {
				t.Errorf("got %+v, %v", c, err)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	whole := func(t *testing.T, who Identity) []byte {
		dir := t.TempDir()
		c := (&random{Rand: rand.New(rand.NewPCG(1, 1))}).content()
		c.Entries = append(c.Entries, Entry{From: t0, Batch: &history.Batch{Run: 9, Number: 1, CompleteTo: t0, Gaps: make([]history.Gap, 3)}})
		if _, err := Write(dir, who, c, Options{}); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(filepath.Join(dir, FileName))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	sealed := func(raw []byte) []byte { // with a good checksum
		raw = raw[:len(raw)-crcBytes]
		return binary.BigEndian.AppendUint32(raw, crc32.Checksum(raw, castagnoli))
	}
	bytes := func(change func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			if err := os.WriteFile(path, change(whole(t, self)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := []struct {
		name string
		make func(t *testing.T, path string)
		says []string
	}{
		{"another system", func(t *testing.T, path string) {
			_ = os.WriteFile(path, whole(t, Identity{1, self.Node, "1.0"}), 0o600)
		}, []string{"another server", "system identifier 1,", "17446744073709551615", "copied"}},
		{"another node", func(t *testing.T, path string) {
			_ = os.WriteFile(path, whole(t, Identity{self.SystemIdentifier, "db1:5433", "1.0"}), 0o600)
		}, []string{`"db1:5433"`, `"db1:5432"`, "node_name"}},
		{"cut in half", bytes(func(raw []byte) []byte { return raw[:len(raw)/2] }), []string{"damaged", "should be"}},
		{"cut by one byte", bytes(func(raw []byte) []byte { return raw[:len(raw)-1] }), []string{"damaged", "should be"}},
		{"something behind it", bytes(func(raw []byte) []byte { return append(raw, 0) }), []string{"damaged", "should be"}},
		{"one byte changed", bytes(func(raw []byte) []byte { raw[len(raw)/2] ^= 0x10; return raw }), []string{"damaged", "checksum"}},
		{"empty", bytes(func([]byte) []byte { return nil }), []string{"damaged", "0 bytes"}},
		{"not ours", bytes(func([]byte) []byte { return []byte(strings.Repeat("x", 5000)) }), []string{"damaged"}},
		{"newer format", bytes(func(raw []byte) []byte { raw[len(magic)+3]++; return sealed(raw) }), []string{fmt.Sprint("format ", format+1), fmt.Sprint("reads ", format), "another version"}},
		{"does not say whose", bytes(func(raw []byte) []byte {
			raw = append(raw[:headerBytes], 1, 2, 3, 0, 0, 0, 0)
			binary.BigEndian.PutUint64(raw[len(magic)+4:], 3)
			return sealed(raw)
		}), []string{"damaged", "whose"}},
		{"nonsense within", bytes(func(raw []byte) []byte {
			at := headerBytes + 8 + 8 + 1 + len(self.Node) + 1 + len(self.ExtensionVersion)
			raw[at] = 0xff // so many texts
			return sealed(raw)
		}), []string{"damaged", "cannot be read", "1.0"}},
		{"too large", func(t *testing.T, path string) {
			f, err := os.Create(path)
			if err == nil {
				err = errors.Join(f.Truncate(limit+1), f.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		}, []string{"64 MB", "memory_limit to 130MB", "rename it back"}},
		{"link", func(t *testing.T, path string) {
			elsewhere := filepath.Join(t.TempDir(), "there")
			if err := errors.Join(os.WriteFile(elsewhere, whole(t, self), 0o600), os.Symlink(elsewhere, path)); err != nil {
				t.Fatal(err)
			}
		}, []string{"not a regular file", "neither follows"}},
		{"fifo", func(t *testing.T, path string) {
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
		}, []string{"not a regular file"}},
		{"directory", func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, []string{"not a regular file"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			tt.make(t, filepath.Join(dir, FileName))
			if tt.name != "directory" { // an older one is replaced
				if err := os.WriteFile(filepath.Join(dir, RefusedName), []byte("older"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c, err := Load(dir, self, limit)
			var refusal *Refusal
			if c != nil || !errors.As(err, &refusal) {
				t.Fatalf("got %+v, %v; want it refused", c, err)
			}
			all := refusal.Reason + " " + refusal.Hint
			for _, word := range tt.says {
				if !strings.Contains(all, word) {
					t.Errorf("%q does not say %q", all, word)
				}
			}
			if refusal.Hint == "" || !strings.Contains(refusal.Reason, FileName) {
				t.Errorf("%q is not enough to go by", all)
			}
			if names := filesIn(t, dir); names != RefusedName {
				t.Errorf("there are %q, want it moved aside", names)
			}
			if c, err := Load(dir, self, limit); c != nil || err != nil {
				t.Errorf("the second time: %+v, %v; want it told once", c, err)
			}
		})
	}
}

// Every single byte counts.
func TestAnyByteChanged(t *testing.T) {
	r := newRandom(t)
	dir := t.TempDir()
	write(t, dir, r.content(), Options{})
	raw, err := os.ReadFile(filepath.Join(dir, FileName))
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		raw[i] ^= 1 << r.IntN(8)
		if c, err := decode(raw, 7, self); err == nil {
			t.Fatalf("byte %d of %d changed: read as %+v", i, len(raw), c)
		}
		copy(raw, mustRead(t, dir))
	}
}

func mustRead(t *testing.T, dir string) []byte {
	t.Helper()
	return mustReadFile(t, filepath.Join(dir, FileName))
}

func mustReadFile(t *testing.T, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestRefusedAndNotMovable(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, FileName), nil, 0o600),
		os.MkdirAll(filepath.Join(dir, RefusedName, "x"), 0o700)); err != nil {
		t.Fatal(err)
	}
	_, err := Load(dir, self, limit)
	var refusal *Refusal
	if !errors.As(err, &refusal) || !strings.Contains(refusal.Hint, "by hand") {
		t.Errorf("got %v, want a refusal that says what to do", err)
	}
}

func TestUnusableDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	if _, err := Write(dir, self, Content{}, Options{}); err == nil {
		t.Error("written to nowhere")
	}
	if c, err := Load(dir, self, limit); c != nil || err != nil {
		t.Errorf("read from nowhere: %+v, %v", c, err)
	}
	dir = t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, FileName, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(dir, self, Content{}, Options{}); err == nil {
		t.Error("renamed over a directory")
	}
	if names := filesIn(t, dir); names != FileName {
		t.Errorf("left: %s", names)
	}
}

// A link in place of the file to be is replaced, not written through.
func TestWritesThroughNoLink(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(t.TempDir(), "victim")
	for _, name := range []string{newName, FileName} {
		if err := errors.Join(os.WriteFile(victim, []byte("precious"), 0o600), os.Symlink(victim, filepath.Join(dir, name))); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir, Content{}, Options{})
	if text, err := os.ReadFile(victim); err != nil || string(text) != "precious" {
		t.Errorf("the file behind the link: %q, %v", text, err)
	}
	if info, err := os.Lstat(filepath.Join(dir, FileName)); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the file: %v, %v", info, err)
	}
}

// storm makes batches of n waits behind one blocker each, all with texts of
// 1 kB, as the sampler shares them.
func storm(batches, n int) Content {
	c := Content{Runs: []history.Run{{ID: 77, CompleteTo: t0}}}
	sessions := make([]*snapshot.Session, n+1)
	for i := range sessions {
		sessions[i] = &snapshot.Session{Slot: int32(i), Pid: int32(10000 + i), State: snapshot.StateActive, Database: 16384, Role: 10,
			BackendStart: t0, XactStart: t0.Add(time.Second), QueryStart: t0.Add(time.Second), StateChange: t0.Add(time.Second), SeenAt: t0.Add(2 * time.Second),
			QueryID: int64(i) * 0x9E3779B97F4A7C1, BackendType: "client backend", ApplicationName: "shop",
			Query: fmt.Sprintf("UPDATE stock SET n = n - 1 WHERE id = %d /* %s */", i, strings.Repeat("x", 960))}
	}
	for b := range batches {
		batch := &history.Batch{Run: 77, Number: int64(b + 1), CompleteTo: t0.Add(time.Duration(b+1) * time.Second), Waiting: true}
		for i := range n {
			start := batch.CompleteTo.Add(-time.Duration(i) * 3 * time.Millisecond)
			batch.Closed = append(batch.Closed, history.Episode{WaitID: int64(b*n+i) * 0x1E3779B97F4A7C15, Waiter: sessions[i+1],
				Tag: lockmgr.Tag{Field1: uint32(4000 + b), Type: lockmgr.TransactionID, Method: 1}, Mode: 5, Start: start, End: batch.CompleteTo,
				Outcome: history.Granted, Samples: 80, QueueKey: int64(start) * 1000, HardCount: 1, SoftCount: 1,
				Edges: []history.Edge{
					{Kind: history.Hard, Modes: 1 << 7, From: start, To: batch.CompleteTo, Blocker: sessions[0]},
					{Kind: history.Soft, Modes: 1 << 5, From: start, To: batch.CompleteTo, Blocker: sessions[i]},
					{Kind: history.Root, From: start, To: batch.CompleteTo, Blocker: sessions[0]},
				}, SoftPids: []int32{sessions[i].Pid}})
		}
		c.Entries = append(c.Entries, Entry{Batch: batch, From: batch.CompleteTo.Add(-time.Second)})
	}
	return c
}

func TestTextsStandOnce(t *testing.T) {
	w := write(t, t.TempDir(), storm(50, 20), Options{})
	if w.Bytes > 21*1100+1000*120 {
		t.Errorf("%d bytes for 1000 waits of 20 sessions: texts must stand once, and an episode take about 100", w.Bytes)
	}
}

func TestWhatHasNoRoomIsCounted(t *testing.T) {
	c := storm(50, 20)
	all := write(t, t.TempDir(), c, Options{})
	past := time.Now().Add(-time.Second)
	tests := []struct {
		name    string
		o       Options
		entries []Entry
		whole   func(n int) bool // batches that are in as they were
	}{
		{"all fit", Options{MaxBytes: all.Bytes + 1000}, c.Entries, func(n int) bool { return n == 50 }},
		{"half of the room", Options{MaxBytes: all.Bytes / 2}, c.Entries, func(n int) bool { return n > 5 && n < 30 }},
		{"no room", Options{MaxBytes: 1}, c.Entries, func(n int) bool { return n == 0 }},
		{"no time", Options{EncodeBy: past}, c.Entries, func(n int) bool { return n == 0 }},
		{"no time, nothing there", Options{EncodeBy: past}, nil, func(n int) bool { return n == 0 }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			w := write(t, dir, Content{Runs: c.Runs, Entries: tt.entries}, tt.o)
			got, err := Load(dir, self, limit)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for n < len(got.Entries) && reflect.DeepEqual(got.Entries[n], tt.entries[n]) {
				n++
			}
			if !tt.whole(n) || w.Rows != 20*n || w.Rows+w.Lost != 20*len(tt.entries) || got.CompleteTo() != t0 {
				t.Fatalf("%d batches are whole, told %+v, complete to %d", n, w, got.CompleteTo())
			}
			if tt.o.MaxBytes > 1000 && w.Bytes > tt.o.MaxBytes {
				t.Errorf("%d bytes, the bound is %d", w.Bytes, tt.o.MaxBytes)
			}
			if n == len(tt.entries) {
				return
			}
			last := got.Entries[len(got.Entries)-1].Batch
			if len(got.Entries) != n+1 || last.Run != 77 || last.Number != 50 || last.Rows() != 1 || len(last.Gaps) != 1 {
				t.Fatalf("%d entries, the last %+v; want the rest as one gap with the last number", len(got.Entries), last)
			}
			if g := last.Gaps[0]; g.Lost != int64(w.Lost) || g.Began != tt.entries[n].From || g.Ended != t0.Add(50*time.Second) ||
				g.Reason != history.GapWriterBlocked || g.Detail == "" {
				t.Errorf("gap %+v", g)
			}
		})
	}
}

// Nothing gets to the disk that the tables would not hold.
func TestOnlyWhatIsKeptOfStatements(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, storm(1, 3), Options{Text: func(s *snapshot.Session, _ string) string { return fmt.Sprintf("kept of %d", s.Pid) }})
	if raw := string(mustRead(t, dir)); strings.Contains(raw, "UPDATE") || !strings.Contains(raw, "kept of 10003") {
		t.Error("the file holds statements as they were")
	}
}

func TestLivesAreBounded(t *testing.T) {
	dir := t.TempDir()
	var c Content
	for n := range maxRuns + 5 {
		c.Runs = append(c.Runs, history.Run{ID: int64(n + 1)})
	}
	write(t, dir, c, Options{})
	if got, err := Load(dir, self, limit); err != nil || len(got.Runs) != maxRuns || got.Runs[maxRuns-1].ID != maxRuns+5 {
		t.Errorf("%v: want the newest %d", err, maxRuns)
	}
}

// Any bytes can be read. They are sealed, so that what lies behind the
// checksum is tried; and as they are.
func FuzzDecode(f *testing.F) {
	r := &random{Rand: rand.New(rand.NewPCG(2, 3))}
	for seeds := 0; seeds < 20; {
		c := r.content()
		parts, w := encode(self, 7, &c, &Options{})
		if w.Bytes > 500 { // small ones are changed faster
			r.pool = nil
			continue
		}
		seeds++
		var body []byte
		for _, part := range parts[1 : len(parts)-1] {
			body = append(body, part...)
		}
		f.Add(body)
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		raw := append([]byte(magic), 0, 0, 0, format)
		raw = binary.BigEndian.AppendUint64(raw, uint64(len(body)))
		raw = append(raw, body...)
		raw = binary.BigEndian.AppendUint32(raw, crc32.Checksum(raw, castagnoli))
		var refusal *Refusal
		c, err := decode(raw, 7, self)
		if (c == nil) == (err == nil) || err != nil && !errors.As(err, &refusal) {
			t.Errorf("got %+v, %v", c, err)
		}
		if _, err := decode(body, 7, self); err != nil && !errors.As(err, &refusal) {
			t.Errorf("got %v", err)
		}
		if c == nil {
			return
		}
		// What was read can be written and read again.
		parts, _ := encode(self, 7, c, &Options{})
		var again []byte
		for _, part := range parts {
			again = append(again, part...)
		}
		if c2, err := decode(again, 7, self); err != nil || len(c2.Entries) != len(c.Entries) || c2.Rows() != c.Rows() {
			t.Errorf("again: %v", err)
		}
	})
}

func benchmarkSizes() map[string]Content {
	return map[string]Content{
		"episodes=1000":   storm(10, 100),
		"episodes=10000":  storm(20, 500),
		"episodes=100000": storm(200, 500),
	}
}

func BenchmarkWrite(b *testing.B) {
	for name, c := range benchmarkSizes() {
		b.Run(name, func(b *testing.B) {
			dir := b.TempDir()
			var w Written
			for b.Loop() {
				w = write(b, dir, c, Options{})
			}
			b.SetBytes(w.Bytes)
			b.ReportMetric(float64(w.Bytes)/float64(w.Rows), "bytes/episode")
		})
	}
}

func BenchmarkLoad(b *testing.B) {
	for name, c := range benchmarkSizes() {
		b.Run(name, func(b *testing.B) {
			dir := b.TempDir()
			b.SetBytes(write(b, dir, c, Options{}).Bytes)
			for b.Loop() {
				if _, err := Load(dir, self, 1<<30); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
