// Command manifest checks manifests of Kubernetes strictly against its types: manifest FILE. It prints the objects, and what each container of a
// DaemonSet may do.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		document, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = check(document)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
}

func check(document []byte) error {
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(document, &kind); err != nil {
		return err
	}
	switch kind.APIVersion + " " + kind.Kind {
	case "v1 ConfigMap":
		var c corev1.ConfigMap
		if err := decode(document, &c); err != nil {
			return err
		}
		fmt.Println("ConfigMap", c.Name)
	case "apps/v1 DaemonSet":
		var d appsv1.DaemonSet
		if err := decode(document, &d); err != nil {
			return err
		}
		fmt.Println("DaemonSet", d.Name)
		return pod(d.Spec.Template.Spec)
	default:
		return fmt.Errorf("%s %s is not known here", kind.APIVersion, kind.Kind)
	}
	return nil
}

// decode is as strict as a server of Kubernetes: keys are unique and known, with their small and large letters.
func decode(document []byte, into any) error {
	text, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return err
	}
	unknown, err := json.UnmarshalStrict(text, into)
	return errors.Join(append(unknown, err)...)
}

// pod prints what the containers may do, and finds volumes that are not there.
func pod(p corev1.PodSpec) error {
	volumes := map[string]bool{}
	for _, v := range p.Volumes {
		volumes[v.Name] = true
	}
	for _, c := range p.Containers {
		s := c.SecurityContext
		fmt.Println("container", c.Name, "user", *s.RunAsUser, "add", s.Capabilities.Add, "drop", s.Capabilities.Drop)
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] {
				return fmt.Errorf("container %s: there is no volume %s", c.Name, m.Name)
			}
		}
	}
	return nil
}
