package proto_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	pluginv1 "gatekit/plugins/proto/gatekit/plugin/v1"
)

// TestPluginsOfEarlierVersionsUnderstandTheProtocol compares the protocol with those of earlier
// versions in testdata/versions. Plugins that were built for them must still work: no method, field
// or value was removed, and none has another number or type.
func TestPluginsOfEarlierVersionsUnderstandTheProtocol(t *testing.T) {
	files, err := filepath.Glob("testdata/versions/*.txtpb")
	if err != nil || len(files) == 0 {
		t.Fatalf("testdata/versions has no files (%v)", err)
	}
	now := protodesc.ToFileDescriptorProto(pluginv1.File_gatekit_plugin_v1_plugin_proto)
	current, err := declarations(now)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var earlier descriptorpb.FileDescriptorProto
		if err := prototext.Unmarshal(text, &earlier); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		want, err := declarations(&earlier)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if len(want) < 50 {
			t.Errorf("%s has %d declarations, want 50 or more", file, len(want))
		}
		for name, declared := range want {
			if current[name] != declared {
				t.Errorf("%s: %s was %q and is %q now", file, name, declared, current[name])
			}
		}
	}
}

// declarations returns what a plugin depends on: the number and type of each field, the number of
// each value, and the types of each method, by full name.
func declarations(file *descriptorpb.FileDescriptorProto) (map[string]string, error) {
	f, err := protodesc.NewFile(file, protoregistry.GlobalFiles)
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	addEnums := func(all protoreflect.EnumDescriptors) {
		for i := range all.Len() {
			values := all.Get(i).Values()
			for j := range values.Len() {
				found[string(values.Get(j).FullName())] = fmt.Sprint(values.Get(j).Number())
			}
		}
	}
	var addMessages func(protoreflect.MessageDescriptors)
	addMessages = func(all protoreflect.MessageDescriptors) {
		for i := range all.Len() {
			fields := all.Get(i).Fields()
			for j := range fields.Len() {
				d := fields.Get(j)
				declared := fmt.Sprintf("%d %v %v", d.Number(), d.Cardinality(), d.Kind())
				if d.Message() != nil {
					declared += " " + string(d.Message().FullName())
				}
				if d.Enum() != nil {
					declared += " " + string(d.Enum().FullName())
				}
				found[string(d.FullName())] = declared
			}
			addEnums(all.Get(i).Enums())
			addMessages(all.Get(i).Messages())
		}
	}
	addMessages(f.Messages())
	addEnums(f.Enums())
	for i := range f.Services().Len() {
		methods := f.Services().Get(i).Methods()
		for j := range methods.Len() {
			m := methods.Get(j)
			found[string(m.FullName())] = fmt.Sprintf("%s %t, %s %t", m.Input().FullName(),
				m.IsStreamingClient(), m.Output().FullName(), m.IsStreamingServer())
		}
	}
	return found, nil
}
