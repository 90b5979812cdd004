"""How many images each class of the benchmarks has: one line per class, one column per domain."""

ClassCounts = tuple[tuple[str, int], ...]  # classes in the order of their names


def columns(table: str) -> tuple[ClassCounts, ...]:
    """The counts of each domain, in the order of the table's columns."""
    lines = [line.split() for line in table.split("\n") if line]
    return tuple(tuple((line[0], int(line[column])) for line in lines) for column in range(1, len(lines[0])))


# Art, Clipart, Product, Real World
OFFICE_HOME = """
Alarm_Clock 74 60 79 86
Backpack 41 56 99 99
Batteries 27 64 62 64
Bed 40 98 43 83
Bike 75 99 44 99
Bottle 99 99 62 78
Bucket 40 73 47 80
Calculator 33 46 81 73
Calendar 20 78 81 68
Candles 76 99 56 99
Chair 69 99 99 96
Clipboards 25 40 65 65
Computer 44 99 96 64
Couch 40 64 88 76
Curtains 40 42 75 73
Desk_Lamp 23 41 83 62
Drill 15 48 67 51
Eraser 18 40 41 43
Exit_Sign 21 41 67 81
Fan 45 50 58 60
File_Cabinet 22 40 71 58
Flipflops 46 40 99 85
Flowers 90 99 91 75
Folder 20 99 90 57
Fork 46 61 41 36
Glasses 40 52 67 60
Hammer 40 99 57 52
Helmet 79 69 90 60
Kettle 46 40 72 72
Keyboard 18 99 99 75
Knives 72 53 41 83
Lamp_Shade 49 40 54 78
Laptop 51 99 99 67
Marker 20 71 56 23
Monitor 42 99 98 71
Mop 32 40 72 46
Mouse 18 76 96 60
Mug 49 99 41 58
Notebook 21 83 93 68
Oven 20 40 68 64
Pan 19 51 70 30
Paper_Clip 19 40 47 68
Pen 20 99 60 65
Pencil 26 99 40 59
Postit_Notes 19 41 38 67
Printer 18 87 99 52
Push_Pin 24 40 43 53
Radio 47 46 43 66
Refrigerator 49 40 59 75
Ruler 15 67 58 41
Scissors 20 99 99 77
Screwdriver 30 75 40 51
Shelf 42 42 49 66
Sink 41 42 46 77
Sneakers 46 43 99 88
Soda 40 61 43 63
Speaker 20 90 99 81
Spoon 46 60 47 54
TV 40 99 76 53
Table 16 80 60 59
Telephone 44 99 58 82
ToothBrush 43 39 42 85
Toys 20 99 45 67
Trash_Can 21 53 93 81
Webcam 16 40 98 49
"""

# each of c, i and p
IMAGE_CLEF = """
aeroplane 50
bike 50
bird 50
boat 50
bottle 50
bus 50
car 50
dog 50
horse 50
monitor 50
motorbike 50
people 50
"""

# train, validation
VISDA = """
aeroplane 14309 3646
bicycle 7365 3475
bus 16640 4690
car 12800 10401
horse 9512 4691
knife 14240 2075
motorcycle 17360 5796
person 12160 4000
plant 10731 4549
skateboard 11680 2281
train 16000 4236
truck 9600 5548
"""

# amazon, dslr, webcam
OFFICE_31 = """
back_pack 92 12 29
bike 82 21 21
bike_helmet 72 24 28
bookcase 82 12 12
bottle 36 16 16
calculator 94 12 31
desk_chair 91 13 40
desk_lamp 97 14 18
desktop_computer 97 15 21
file_cabinet 81 15 19
headphones 99 13 27
keyboard 100 10 27
laptop_computer 100 24 30
letter_tray 98 16 19
mobile_phone 100 31 30
monitor 99 22 43
mouse 100 12 30
mug 94 8 27
paper_notebook 96 10 28
pen 95 10 32
phone 93 13 16
printer 100 15 20
projector 98 23 30
punchers 98 18 27
ring_binder 90 10 40
ruler 75 7 11
scissors 100 18 25
speaker 99 26 30
stapler 99 21 24
tape_dispenser 96 22 23
trash_can 64 15 21
"""
