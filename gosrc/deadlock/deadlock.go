package deadlock

import (
	"regexp"
	"strconv"
	"strings"

	"pg_lock_history/gosrc/lockmgr"
)

// Line is one member of the circle.
type Line struct {
	Pid     int32
	Blocker int32
	Mode    lockmgr.Mode
	Tag     lockmgr.Tag
	HasTag  bool // Tag could be read
}

// maxLines bounds what is made of a text; the server has as many as sessions.
const maxLines = 1000

var (
	english = regexp.MustCompile(`^Process \d+ waits for \S+ on (.+); blocked by process \d+\.$`)
	number  = regexp.MustCompile(`\d+`)
	mode    = regexp.MustCompile(`[A-Z][A-Za-z]*Lock\b`)
)

// Parse reads the detail of a deadlock error; cut says that its end is missing.
// It returns nil when the text is not what it has to be.
func Parse(text string, cut bool) []Line {
	rows := strings.Split(text, "\n")
	if cut {
		rows = rows[:len(rows)-1] // the last one is not whole
	}
	if len(rows) == 0 || len(rows) > maxLines {
		return nil
	}
	lines := make([]Line, 0, len(rows))
	for _, row := range rows {
		l, ok := parseLine(row)
		if !ok || len(lines) > 0 && lines[len(lines)-1].Blocker != l.Pid {
			return nil
		}
		lines = append(lines, l)
	}
	if !cut && lines[len(lines)-1].Blocker != lines[0].Pid {
		return nil
	}
	return lines
}

func parseLine(row string) (Line, bool) {
	var l Line
	numbers := number.FindAllString(row, -1)
	if len(numbers) < 2 {
		return l, false
	}
	pid, err := strconv.ParseInt(numbers[0], 10, 32)
	blocker, err2 := strconv.ParseInt(numbers[len(numbers)-1], 10, 32)
	if err != nil || err2 != nil || pid == 0 || blocker == 0 {
		return l, false
	}
	l.Pid, l.Blocker = int32(pid), int32(blocker)
	for _, name := range mode.FindAllString(row, -1) {
		for m := lockmgr.Mode(1); m <= lockmgr.MaxMode; m++ {
			if m.String() == name && l.Mode == 0 {
				l.Mode = m
			}
		}
	}
	if l.Mode == 0 {
		return l, false
	}
	if found := english.FindStringSubmatch(row); found != nil {
		l.Tag, l.HasTag = parseTag(found[1])
	}
	return l, true
}

// Methods as the server numbers them.
const (
	defaultMethod = 1
	userMethod    = 2
)

// forms are the server's descriptions of locks (DescribeLockTag), the fields of
// the tag in the order in which they stand in the text.
var forms = []struct {
	pattern *regexp.Regexp
	kind    lockmgr.Type
	method  uint8
	fields  []int
}{
	{form(`relation # of database #`), lockmgr.Relation, defaultMethod, []int{2, 1}},
	{form(`extension of relation # of database #`), lockmgr.Extend, defaultMethod, []int{2, 1}},
	{form(`pg_database.datfrozenxid of database #`), lockmgr.FrozenID, defaultMethod, []int{1}},
	{form(`page # of relation # of database #`), lockmgr.Page, defaultMethod, []int{3, 2, 1}},
	{form(`tuple (#,#) of relation # of database #`), lockmgr.Tuple, defaultMethod, []int{3, 4, 2, 1}},
	{form(`transaction #`), lockmgr.TransactionID, defaultMethod, []int{1}},
	{form(`virtual transaction #/#`), lockmgr.VirtualXID, defaultMethod, []int{1, 2}},
	{form(`speculative token # of transaction #`), lockmgr.SpecToken, defaultMethod, []int{2, 1}},
	{form(`object # of class # of database #`), lockmgr.Object, defaultMethod, []int{3, 2, 1}},
	{form(`user lock [#,#,#]`), lockmgr.UserLock, userMethod, []int{1, 2, 3}},
	{form(`advisory lock [#,#,#,#]`), lockmgr.Advisory, userMethod, []int{1, 2, 3, 4}},
	{form(`remote transaction # of subscription # of database #`), lockmgr.ApplyTransaction, defaultMethod, []int{3, 2, 1}},
}

func form(text string) *regexp.Regexp {
	return regexp.MustCompile(`^` + strings.ReplaceAll(regexp.QuoteMeta(text), `#`, `(\d+)`) + `$`)
}

func parseTag(text string) (lockmgr.Tag, bool) {
	for i := range forms {
		f := &forms[i]
		found := f.pattern.FindStringSubmatch(text)
		if found == nil {
			continue
		}
		t := lockmgr.Tag{Type: f.kind, Method: f.method}
		for n, field := range f.fields {
			bits := 32
			if field == 4 {
				bits = 16
			}
			v, err := strconv.ParseUint(found[n+1], 10, bits)
			if err != nil {
				return lockmgr.Tag{}, false
			}
			switch field {
			case 1:
				t.Field1 = uint32(v)
			case 2:
				t.Field2 = uint32(v)
			case 3:
				t.Field3 = uint32(v)
			case 4:
				t.Field4 = uint16(v)
			}
		}
		return t, true
	}
	return lockmgr.Tag{}, false
}
