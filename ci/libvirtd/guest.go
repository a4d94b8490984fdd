package libvirtd

import "encoding/binary"

const sector = 2048 // of a CD

// program is the code that boots in the domains. It is sixteen-bit code that prints on the serial
// port where it was booted from, and switches the machine off when its power button is pressed, as
// ACPI has it (QEMU's PIIX4: PM1 status at 0x600, enable at 0x602, control at 0x604). It needs a
// second and no operating system.
func program(says string) []byte {
	code := []byte{
		0xea, 0x05, 0x7c, 0x00, 0x00, //       ljmp $0, $main: the firmware may have another segment
		0xfa,       //                   main: cli
		0x31, 0xc0, //                         xor %ax, %ax
		0x8e, 0xd8, //                         mov %ax, %ds
		0x8e, 0xd0, //                         mov %ax, %ss
		0xbc, 0x00, 0x7c, //                   mov $0x7c00, %sp
		0xfc,             //                   cld
		0xbe, 0x39, 0x7c, //                   mov $text, %si
		0xba, 0xf8, 0x03, //                   mov $0x3f8, %dx
		0xac,       //                  next:  lodsb
		0x84, 0xc0, //                         test %al, %al
		0x74, 0x03, //                         jz said
		0xee,       //                         out %al, %dx
		0xeb, 0xf8, //                         jmp next
		0xba, 0x02, 0x06, //            said:  mov $0x602, %dx
		0xb8, 0x00, 0x01, //                   mov $0x100, %ax
		0xef,             //                   out %ax, %dx: listen to the button
		0xfb,             //                   sti
		0xf4,             //            wait:  hlt
		0xba, 0x00, 0x06, //                   mov $0x600, %dx
		0xed,             //                   in %dx, %ax
		0xf6, 0xc4, 0x01, //                   test $1, %ah
		0x74, 0xf6, //                         jz wait
		0xba, 0x04, 0x06, //                   mov $0x604, %dx
		0xb8, 0x00, 0x20, //                   mov $0x2000, %ax
		0xef,       //                         out %ax, %dx: S5, off
		0xeb, 0xed, //                         jmp wait
	} //                                text:
	return append(code, says+"\n\x00"...)
}

// disk boots the program from a disk.
func disk(says string) []byte {
	image := make([]byte, 1<<20)
	copy(image, program(says))
	image[510], image[511] = 0x55, 0xaa
	return image
}

// CD is the image of a CD from which the program boots: what the El Torito specification (1.0,
// 1995) asks of a CD that is bootable without emulation, and no file system.
func CD(says string) []byte {
	const record, terminator, catalog, image = 17, 18, 19, 20
	cd := make([]byte, (image+1)*sector)
	at := func(n int) []byte { return cd[n*sector : (n+1)*sector] }
	copy(at(record), "\x00CD001\x01EL TORITO SPECIFICATION")
	binary.LittleEndian.PutUint32(at(record)[0x47:], catalog)
	copy(at(terminator), "\xffCD001\x01")
	entries := at(catalog)
	entries[0], entries[0x1e], entries[0x1f] = 1, 0x55, 0xaa
	binary.LittleEndian.PutUint16(entries[0x1c:], 0x55aa) // the words add up to 0
	entries[0x20] = 0x88                                  // bootable
	binary.LittleEndian.PutUint16(entries[0x26:], sector/512)
	binary.LittleEndian.PutUint32(entries[0x28:], image)
	copy(at(image), program(says))
	return cd
}
